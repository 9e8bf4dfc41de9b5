"""How locations are shown: without what is secret in them. And which files are opened."""

import os
from pathlib import Path

import pytest
from pyarrow import fs

from pipeline.common.files import NotAFileError, open_file, redacted


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("s3://key:sec/ret@bucket/a@b?secret_key=x", "s3://bucket/a@b"),
        ("S3A://key:sec@ret@bucket/a", "S3A://bucket/a"),
        ("s3://key:/secret@bucket/a", "s3://bucket/a"),
        ("s3://key:sec%2Fret%40@bucket/a", "s3://bucket/a"),
        ("s3://key:123,secret@bucket/a", "s3://bucket/a"),
        ("s3://:secret@bucket/a", "s3://bucket/a"),
        ("s3:/key:secret@bucket/a", "s3:/bucket/a"),
        ("s3:key:secret@bucket/a", "s3:bucket/a"),
        ("http://user:p@ss@host:1/metrics", "http://host:1/metrics"),
        ("http://user:p?ss@host:1/metrics", "http://host:1/metrics"),
        ("http://token@host:1/metrics", "http://host:1/metrics"),
        ("HTTPS://token@host/metrics?a=b", "HTTPS://host/metrics"),
        ("user:p4ss@host/metrics", "user:host/metrics"),
    ],
)
def test_a_location_is_shown_without_its_secrets(location: str, shown: str) -> None:
    assert redacted(location) == shown


@pytest.mark.parametrize(
    "location",
    [
        "abfss://container@account/a:b",
        "abfss://container@account/a:b@c",
        "/a@b?c",
        "a:b@c",
        "http://host:9404/a@b",
        "hdfs://host:8020/a:b@c",
        "hdfs://nn1:8020,nn2:8020/lake@v2",
        "hdfs://nn1:8020,nn2,nn3:8020/lake@v2",
    ],
)
def test_the_other_parts_of_a_location_are_shown(location: str) -> None:
    assert redacted(location) == location


@pytest.mark.parametrize("is_listed", [False, True])
@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_anything_but_a_regular_file_is_refused_and_closed(kind: str, is_listed: bool, tmp_path: Path) -> None:
    other = tmp_path / kind
    if kind == "folder":
        other.mkdir()
    else:
        os.mkfifo(other)
    before = os.open(tmp_path, os.O_RDONLY)  # the system gives the lowest number that is free
    os.close(before)
    with pytest.raises(NotAFileError, match="not a regular file"):
        open_file(fs.LocalFileSystem(), str(other), str(tmp_path) if is_listed else None)
    after = os.open(tmp_path, os.O_RDONLY)
    os.close(after)
    assert after == before
