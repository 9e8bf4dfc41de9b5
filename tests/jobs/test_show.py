"""The job `show`: the newest lag in a lake in a local folder, without Spark. The lake is written by delta-rs."""

import csv
import json
import subprocess
import sys
from collections.abc import Callable
from datetime import date
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs import show
from pipeline.common.epoch import utc_date
from pipeline.lake.driver_tables import DriverTables, arrow_rows
from pipeline.lake.upgrade import PROPERTIES, VERSION_PROPERTY
from pipeline.tables import COMPUTED, LAG, SNAPSHOTS, Table
from tests.conftest import ROOT

T0_MS = 1_769_860_800_000  # 2026-01-31T12:00:00Z
T1_MS, T2_MS, T3_MS = (T0_MS + 60_000 * n for n in (1, 2, 3))
CONFIG = '[lake]\nroot = "{root}"\n[snapshot]\nschedule = "1m"\n[clusters.east]\nbootstrap_servers = ["127.0.0.1:1"]\n'
Show = Callable[..., str]


def write(lake: Path, table: Table, *rows: dict[str, Any]) -> None:
    """Rows of a table; columns that are not given are NULL."""
    values = [[row.get(name) for name in table.columns] for row in rows]
    cluster = rows[0]["cluster"]
    DriverTables(lake).overwrite(table, arrow_rows(table, values), f"cluster = '{cluster}'")


def create(lake: Path, properties: dict[str, str]) -> None:
    for table in (SNAPSHOTS, COMPUTED, LAG):
        DriverTables(lake).create(table, properties)


def reader(cluster: str, snapshot_id: int, group: str, topic: str, lag: int | None, **values: Any) -> dict[str, Any]:
    named = {"cluster": cluster, "snapshot_id": snapshot_id, "snapshot_date": utc_date(snapshot_id)}
    offsets = {"partition": 0, "high_watermark": 1_000, "consumer_lag": lag, "offset_status": "ok"}
    return named | {"group_id": group, "topic": topic} | offsets | values


def snapshot(cluster: str, snapshot_id: int, status: str = "complete") -> dict[str, Any]:
    day: date = utc_date(snapshot_id)
    return {"cluster": cluster, "snapshot_id": snapshot_id, "snapshot_date": day, "status": status, "run_id": "r"}


def mark(cluster: str, snapshot_id: int, job: str = "lag") -> dict[str, Any]:
    return {"cluster": cluster, "snapshot_id": snapshot_id, "snapshot_date": utc_date(snapshot_id), "job": job}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """East has lag at two snapshots, and two newer ones without; west has a group with a hostile name."""
    lake = tmp_path_factory.mktemp("show") / "lake"
    create(lake, PROPERTIES)
    east = [snapshot("east", T0_MS), snapshot("east", T1_MS, "partial")]
    write(lake, SNAPSHOTS, *east, snapshot("east", T2_MS, "failed"), snapshot("east", T3_MS))
    write(lake, COMPUTED, mark("east", T0_MS), mark("east", T1_MS), mark("east", T3_MS, "lag passed over"))
    write(
        lake,
        LAG,
        reader("east", T0_MS, "old", "t", 7),
        reader("east", T1_MS, "small", "t", 5),
        reader("east", T1_MS, "large", "t", 900, consumer_lag_bytes=2_900_000, bytes_error=100_000),
        reader("east", T1_MS, "lost", "u", 1, offset_status="deleted_unread"),
        reader("east", T1_MS, "unknown", "t", None, offset_status=None),
        reader("east", T1_MS, "idle", "t", None) | {"topic": None},
    )
    write(lake, SNAPSHOTS, snapshot("west", T1_MS))
    write(lake, COMPUTED, mark("west", T1_MS))
    write(lake, LAG, reader("west", T1_MS, "=cmd'\\\x1b[31m", "t", 1))
    return lake


@pytest.fixture
def shown(lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Show:
    """Calls the job, and returns what it prints. It must succeed."""

    def shown(*options: str) -> str:
        (tmp_path / "config.toml").write_text(CONFIG.format(root=lake))
        assert show.main(["--config", str(tmp_path / "config.toml"), *options]) == 0
        return capsys.readouterr().out

    return shown


def test_the_newest_snapshot_with_lag_of_each_cluster_is_shown_the_worst_first(shown: Show) -> None:
    lines = shown().splitlines()
    assert lines[0].split()[:6] == ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]
    assert [line.split()[0] for line in lines[1:6]] == ["lost", "large", "small", r"=cmd'\\x1b[31m", "unknown"]
    assert "2.9 MB ± 0.1 MB" in lines[2]
    assert [line.partition(", ")[0] for line in lines[6:]] == [
        "east: snapshot of 2026-01-31 12:01:00 UTC",
        "west: snapshot of 2026-01-31 12:01:00 UTC",
    ]


def test_the_location_alone_is_enough_where_there_is_no_config(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LAGLAKE_CONFIG", raising=False)
    assert show.main(["--lake", str(lake), "--group", "^small$"]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("small ")


def test_a_config_that_is_named_must_exist(lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert show.main(["--lake", str(lake), "--config", str(tmp_path / "no.toml")]) == 2
    assert "no.toml: cannot be read" in capsys.readouterr().err


def test_an_earlier_instant_shows_the_snapshot_before_it(shown: Show) -> None:
    lines = shown("--at", "2026-01-31T12:00:30Z").splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["old", "east:"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--group", "^l"], ["lost", "large"]),
        (["--topic", "u"], ["lost"]),
        (["--group", "(?i)SMALL|large", "--topic", "^t$"], ["large", "small"]),
        (["--cluster", "west"], [r"=cmd'\\x1b[31m"]),
        (["--group", r"=cmd'\\"], [r"=cmd'\\x1b[31m"]),
    ],
)
def test_groups_topics_and_clusters_can_be_selected(shown: Show, options: list[str], expected: list[str]) -> None:
    lines = shown(*options).splitlines()
    assert [line.split()[0] for line in lines[1:] if "snapshot of" not in line] == expected


def test_a_cluster_that_the_lake_does_not_have_is_refused_with_those_that_it_has(
    lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.toml").write_text(CONFIG.format(root=lake))
    assert show.main(["--config", str(tmp_path / "config.toml"), "--cluster", "no'rth"]) == 1
    assert capsys.readouterr().err == "--cluster no'rth: the lake has no lag of it, only that of east, west\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--group", "smal+x"], r"No group matches --group smal+x; the snapshot has small, =cmd'\\x1b[31m, large, "),
        (["--topic", "nope"], "No topic matches --topic nope; the snapshot has t, u."),
        (["--group", "^small$", "--topic", "^u$"], "No partition is of both: a group that --group matches, and a "),
        (
            ["--at", "2026-01-31T11:59:59Z"],
            "No snapshot up to 2026-01-31 11:59:59 UTC has lag; the oldest that has is ",
        ),
    ],
)
def test_why_nothing_is_shown(shown: Show, options: list[str], said: str) -> None:
    assert shown(*options).startswith(said)


def test_of_many_names_those_that_are_alike_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    create(tmp_path, PROPERTIES)
    write(tmp_path, SNAPSHOTS, snapshot("east", T0_MS))
    write(tmp_path, COMPUTED, mark("east", T0_MS))
    groups = ["billing-slow", *(f"a{n}" for n in range(9))]
    write(tmp_path, LAG, *(reader("east", T0_MS, name, "t", 1) for name in groups))
    assert show.main(["--lake", str(tmp_path), "--config", str(ROOT / "conf/local.toml"), "--group", "bilings"]) == 0
    said = "No group matches --group bilings; the snapshot has billing-slow, a0, a1, a2, a3 and 5 more."
    assert capsys.readouterr().out.splitlines()[0] == said


def test_a_program_gets_an_empty_list_and_a_person_the_reason(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--lake", str(lake), "--config", str(ROOT / "conf/local.toml"), "--topic", "nope", "--format", "json"]
    assert show.main(options) == 0
    assert capsys.readouterr() == ("[]\n", "No topic matches --topic nope; the snapshot has t, u.\n")


def test_what_is_left_out_is_counted(shown: Show) -> None:
    lines = shown("--rows", "2").splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["lost", "large", "and"]
    assert lines[3] == "and 3 more"


def test_json_has_every_partition_with_unknown_values_as_null(shown: Show) -> None:
    rows = json.loads(shown("--format", "json"))
    assert [row["group_id"] for row in rows] == ["lost", "large", "small", "=cmd'\\\x1b[31m", "unknown"]
    assert rows[1]["consumer_lag"] == 900
    assert rows[4]["consumer_lag"] is None


def test_json_and_csv_have_the_same_columns(shown: Show) -> None:
    of_json = json.loads(shown("--format", "json"))[0]
    of_csv = next(csv.DictReader(StringIO(shown("--format", "csv"))))
    assert [*of_json] == [*of_csv]
    assert of_json["snapshot_at"] == of_csv["snapshot_at"] == "2026-01-31T12:01:00+00:00"


def test_csv_has_every_partition_and_no_formula(shown: Show) -> None:
    rows = list(csv.DictReader(StringIO(shown("--format", "csv"))))
    assert [row["consumer_lag"] for row in rows] == ["1", "900", "5", "1", ""]
    assert rows[3]["group_id"] == r"'=cmd'\\x1b[31m"


def test_it_is_printed_again_until_it_is_interrupted(shown: Show, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(show, "time", SimpleNamespace(sleep=sleep))  # other threads of the tests also sleep
    output = shown("--watch", "30s", "--cluster", "west")
    assert output.count("GROUP") == 2
    assert slept == [30, 30]


@pytest.mark.parametrize(
    ("where", "options", "status", "said"),
    [
        pytest.param("absent", [], 1, "{root}: there is no lake; run makes one with its first snapshot", id="no lake"),
        pytest.param("old", [], 1, "{root} has schema version 3, this laglake upgrades only ", id="another version"),
        pytest.param("s3://bucket/lake", [], 2, "the lake is not in a folder of this machine", id="elsewhere"),
        pytest.param("any", ["--watch", "--format", "csv"], 2, "--watch and --format cannot be combined", id="watched"),
    ],
)
def test_what_cannot_be_shown_is_one_line(
    where: str, options: list[str], status: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create(tmp_path / "old", PROPERTIES | {VERSION_PROPERTY: "3"})
    root = where if "://" in where else str(tmp_path / where)
    (tmp_path / "config.toml").write_text(CONFIG.format(root=root))
    assert show.main(["--config", str(tmp_path / "config.toml"), *options]) == status
    error = capsys.readouterr().err
    assert error.startswith(said.format(root=root))
    assert len(error.splitlines()) == 1


def test_a_place_without_a_lake_is_named_with_what_is_there(
    lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    for where, said in (
        (lake.parent, f"{lake.parent}: there is no lake, but {lake} is one"),
        (lake / "lag", f"{lake}/lag: there is no lake, but {lake} is one"),
        (tmp_path / "file", f"{tmp_path}/file: is a file, and not the folder of a lake"),
        (tmp_path, f"{tmp_path}: there is no lake; run makes one with its first snapshot"),
    ):
        assert show.main(["--config", str(ROOT / "conf/local.toml"), "--lake", str(where)]) == 1
        assert capsys.readouterr().err == f"{said}\n"


def test_where_the_default_config_has_no_lake_another_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.toml").write_text(CONFIG.format(root="none"))
    monkeypatch.setenv("LAGLAKE_CONFIG", "config.toml")
    without = f"{tmp_path}/none: there is no lake; run makes one with its first snapshot"
    monkeypatch.setattr(show, "ROOT", tmp_path)
    assert show.main([]) == 1
    assert capsys.readouterr().err == f"{without}; name another config with --config, or another lake with --lake\n"
    tried = tmp_path / "build" / "try" / "config.toml"
    tried.parent.mkdir(parents=True)
    tried.touch()
    assert show.main([]) == 1
    assert capsys.readouterr().err == (
        f"{without}; name another config with --config (that of make try is build/try/config.toml), or another lake "
        "with --lake\n"
    )


def test_a_name_with_a_dot_is_not_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert show.main(["--config", str(ROOT / "conf/local.toml"), "--lake", "README.md"]) == 2
    assert capsys.readouterr().err == (
        "--lake README.md: is read as schema md of catalog README, which needs Spark: use lag --show; "
        "for a folder write ./README.md\n"
    )


def test_it_works_without_java(lake: Path, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(CONFIG.format(root=lake))
    command = [sys.executable, "-m", "jobs.show", "--config", str(tmp_path / "config.toml")]
    no_java = {"PATH": "/nowhere"}
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=no_java, check=True)
    assert "large" in ended.stdout
