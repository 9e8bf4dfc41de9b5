"""How locations are shown: without what is secret in them."""

import pytest

from pipeline.files import redacted


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
def test_a_location_is_shown_without_what_is_secret(location: str, shown: str) -> None:
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
def test_what_is_not_secret_is_shown(location: str) -> None:
    assert redacted(location) == location
