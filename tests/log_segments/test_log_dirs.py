"""Log directories: which partitions and segments are in them, whatever else is there; and names of directories."""

import os
from pathlib import Path

import pytest

from pipeline.common.errors import ConfigError
from pipeline.log_segments.log_dirs import OffsetLocation, PartitionDir, list_partitions, open_log
from tests.helpers.segments import WHOLE, batch, opened, write


def test_partitions_are_listed(recorded: Path) -> None:
    assert list_partitions(str(recorded)) == [
        (str(recorded), "seg-compact", 0),
        (str(recorded), "seg-compressed", 0),
        (str(recorded), "seg-compressed", 1),
        (str(recorded), "seg-plain", 0),
        (str(recorded), "seg-plain", 1),
        (str(recorded), "seg-trimmed", 0),
        (str(recorded), "seg-tx", 0),
    ]


def test_a_partition_without_a_segment_is_an_error_and_a_missing_partition_is_none(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    log = opened(tmp_path)
    assert (log.end, log.at(0)) == (
        (None, None, "KAFKA_STORAGE_ERROR: no segment"),
        OffsetLocation(error=log.end.error),
    )
    assert (log.first_local_offset, log.newest, log.topic_id) == (None, (None, None), None)
    assert open_log(PartitionDir(str(tmp_path), "t", 1)) is None


def test_only_directories_with_the_name_of_a_partition_are_read(tmp_path: Path) -> None:
    stray = "t-0.0123456789abcdef0123456789abcdef"
    odd = [
        f"{stray}-delete",
        f"{stray}-future",
        f"{stray}-stray",
        "t",
        "t-",
        "-0",
        "t-01",
        "t-x",
        "t-٣",
        "t-0\n",
    ]
    odd += ["lost+found", "a b-0", "ö-0", "t-2147483648", f"{'x' * 250}-0", "remote-log-index-cache", "t-1e3"]
    for name in [*odd, "t-0", "..-0", "a-b-c-7", "t-delete-0", "t--1", "t.1_x-2147483647"]:
        (tmp_path / name).mkdir()
    (tmp_path / os.fsdecode(b"\xff-0")).mkdir()
    (tmp_path / "file-0").touch()
    (tmp_path / "dead-0").symlink_to(tmp_path / "nowhere")
    (tmp_path / "linked-0").symlink_to(tmp_path / "t-0")
    names = [f"{p.topic}-{p.partition}" for p in list_partitions(str(tmp_path))]
    assert names == ["..-0", "a-b-c-7", "linked-0", "t-0", "t--1", "t-delete-0", "t.1_x-2147483647"]


def test_only_segments_of_the_log_are_read(tmp_path: Path) -> None:
    good = f"{3:020}.log"
    folder = write(tmp_path, {"3.log": batch(3, 4)})
    for name in [f"{9:020}.log{s}" for s in (".deleted", ".cleaned", ".swap", "\n")] + [
        "9.log",
        f"{9:021}.log",
        "9" * 20 + ".log",
    ]:
        (folder / name).write_bytes(batch(9, 9))
    (folder / f"{10:020}.log").mkdir()
    os.mkfifo(folder / f"{11:020}.log")
    (folder / os.fsdecode(b"\xff.log")).touch()
    assert [segment.name for segment in opened(tmp_path).segments] == [good]


def test_a_file_that_is_a_link_or_has_become_one_or_a_pipe_is_not_read(tmp_path: Path) -> None:
    write(tmp_path / "elsewhere", {"0.log": WHOLE})
    folder = write(tmp_path / "logs", {"0.log": WHOLE, "0.index": b""})
    (tmp_path / "metadata").write_text("version: 0\ntopic_id: " + "B" * 22)
    (folder / "partition.metadata").symlink_to(tmp_path / "metadata")
    segment = folder / f"{0:020}.log"
    for name in ("link", "pipe"):
        log = opened(tmp_path / "logs")
        segment.unlink()
        if name == "link":
            segment.symlink_to(tmp_path / "elsewhere" / "t-0" / segment.name)
        else:
            os.mkfifo(segment)
        assert log.end == (None, None, f"KAFKA_STORAGE_ERROR: {segment.name}: not a regular file")
        assert log.topic_id is None
        segment.unlink()
        segment.write_bytes(WHOLE)
    assert opened(tmp_path / "logs").end == (10, 200, None)


@pytest.mark.parametrize("topic", ["../t", "t/../t", "/t", "", "t\n", "t\0", "x" * 250])
def test_a_topic_name_cannot_lead_out_of_the_log_directory(tmp_path: Path, topic: str) -> None:
    write(tmp_path, {"0.log": WHOLE})
    (tmp_path / "inner").mkdir()
    assert open_log(PartitionDir(str(tmp_path / "inner"), topic, 0)) is None


@pytest.mark.parametrize("text", ["", "version: 0\ntopic_id: " + "A" * 22, "topic_id: short", "\xff\0", "version: 0"])
def test_a_missing_topic_id_is_null(tmp_path: Path, text: str) -> None:
    folder = write(tmp_path, {"0.log": b""})
    (folder / "partition.metadata").write_text(text, encoding="latin-1")
    assert opened(tmp_path).topic_id is None


@pytest.mark.parametrize("form", ["{}", "{}/", "file://{}"])
def test_a_directory_is_a_path_or_a_uri(recorded: Path, form: str) -> None:
    log_dir = form.format(recorded)
    assert len(list_partitions(log_dir)) == 7
    log = open_log(PartitionDir(log_dir, "seg-tx", 0))
    assert log is not None
    assert log.end.offset == 940


def test_a_path_may_be_relative_and_have_special_characters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a b%20#?:c", {"0.log": WHOLE})
    monkeypatch.chdir(tmp_path)
    log = opened(Path("a b%20#?:c"))
    assert (log.end.offset, log.path) == (10, f"{tmp_path}/a b%20#?:c/t-0")


@pytest.mark.parametrize(
    ("log_dir", "message"),
    [
        pytest.param("/no/such/folder", "log directory '/no/such/folder' cannot be listed: ", id="nowhere"),
        pytest.param("nope://me:secret@host/x?key=secret", "'nope://host/x' is not a path, and not a URI", id="scheme"),
    ],
)
def test_a_directory_that_cannot_be_opened_is_named_without_its_password(log_dir: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("?", "[?]")) as caught:
        list_partitions(log_dir)
    assert "secret" not in str(caught.value)
