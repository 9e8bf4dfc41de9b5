"""Fetching Kafka's jars, with a substitute for Java that does what Ivy would do, or fails."""

import threading
from pathlib import Path

import pytest

from demo.embedded_kafka import jars
from demo.errors import JarsError

# Writes down its arguments, and puts one jar where `-retrieve FOLDER/[artifact]…` says.
FAKE_JAVA = """#!/bin/sh
echo "$@" >> "{calls}"
for argument; do
    case $argument in
        */\\[artifact\\]*) folder=${{argument%/*}}; mkdir -p "$folder"; echo new > "$folder/kafka.jar";;
    esac
done
sleep 0.1
exit {status}
"""


class FakeJava:
    """A JAVA_HOME whose java is FAKE_JAVA."""

    def __init__(self, home: Path, status: int) -> None:
        self._calls = home / "calls"
        java = home / "bin" / "java"
        java.parent.mkdir(parents=True)
        java.write_text(FAKE_JAVA.format(calls=self._calls, status=status))
        java.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        return self._calls.read_text().splitlines() if self._calls.exists() else []


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> FakeJava:
    home = tmp_path / "java"
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.delenv(jars.IVY_SETTINGS_VARIABLE, raising=False)
    return FakeJava(home, status=getattr(request, "param", 0))


def test_jars_are_fetched_once(java: FakeJava, tmp_path: Path) -> None:
    target = tmp_path / "jars" / "kafka"
    assert jars.kafka_jars(target) == target
    assert jars.kafka_jars(target) == target
    assert (target / "kafka.jar").read_text() == "new\n"
    assert len(java.calls) == 1


def test_an_interrupted_fetch_is_done_again(java: FakeJava, tmp_path: Path) -> None:
    target = tmp_path / "kafka"
    target.mkdir()
    (target / "half.jar").touch()
    jars.kafka_jars(target)
    assert sorted(file.name for file in target.iterdir()) == [".complete", "kafka.jar"]
    assert len(java.calls) == 1


def test_jars_of_other_versions_are_fetched_again(java: FakeJava, tmp_path: Path) -> None:
    target = jars.kafka_jars(tmp_path / "kafka")
    (target / ".complete").write_text("the fingerprint of another ivy.xml")
    jars.kafka_jars(target)
    assert len(java.calls) == 2


def test_two_that_start_at_once_fetch_once(java: FakeJava, tmp_path: Path) -> None:
    threads = [threading.Thread(target=jars.kafka_jars, args=[tmp_path / "kafka"]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(java.calls) == 1
    assert (tmp_path / "kafka" / "kafka.jar").exists()


def test_a_mirror_comes_from_the_users_own_ivy_settings(
    java: FakeJava, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(jars.IVY_SETTINGS_VARIABLE, "mirror.xml")
    jars.kafka_jars(tmp_path / "kafka")
    assert "-settings mirror.xml" in java.calls[0]


@pytest.mark.parametrize("java", [1], indirect=True)
def test_a_failed_fetch_leaves_nothing_and_says_what_to_do(java: FakeJava, tmp_path: Path) -> None:
    with pytest.raises(JarsError, match=rf"ivy\.log.*{jars.IVY_SETTINGS_VARIABLE}"):
        jars.kafka_jars(tmp_path / "jars" / "kafka")
    assert not (tmp_path / "jars" / "kafka").exists()
    assert len(java.calls) == 1


def test_without_java_the_message_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JarsError, match="install a Java 17 runtime"):
        jars.kafka_jars(tmp_path / "kafka")
