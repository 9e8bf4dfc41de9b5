"""A recorded request log, and the path of a log that a test writes."""

from pathlib import Path

import pytest

from tests.helpers.recordings import unpacked


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked("request-log", tmp_path_factory.mktemp("recordings"))


@pytest.fixture(scope="module")
def lines(recording: Path) -> list[str]:
    return (recording / "request.log").read_text().splitlines(keepends=True)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "broker-1").mkdir()
    return tmp_path / "broker-1" / "kafka-request.log"
