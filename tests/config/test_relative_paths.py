"""Relative paths: those in a file are relative to its folder, wherever a job is called; a second lake is never made."""

from pathlib import Path

import pytest

from pipeline.common.errors import ConfigError
from pipeline.config import Config, lake_at, load_config
from pipeline.config.lake import LEDGER
from pipeline.tables import SNAPSHOTS
from tests.conftest import ROOT

EAST = '[clusters.east]\nbootstrap_servers = ["e:9092"]\n'


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, which is not that of any file."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    return folder


def written(folder: Path, root: str) -> Path:
    """A file in `folder` with this root."""
    folder.mkdir(exist_ok=True)
    file = folder / "my.toml"
    file.write_text(f'[lake]\nroot = "{root}"\n{EAST}')
    return file


def make_lake(folder: Path) -> None:
    (folder / LEDGER / "_delta_log").mkdir(parents=True)


def test_the_name_of_the_ledger_is_that_of_its_table() -> None:
    assert SNAPSHOTS.name == LEDGER


@pytest.mark.parametrize(
    ("root", "expected"),
    [
        pytest.param("lake", "{folder}/conf/lake", id="beside the file"),
        pytest.param("../build/lake/", "{folder}/build/lake", id="above it"),
        pytest.param("${env:NAME}/lake", "{folder}/conf/x/lake", id="with a variable"),
        pytest.param("/lake", "/lake", id="absolute"),
        pytest.param("s3a://bucket/lake", "s3a://bucket/lake", id="a URI"),
        pytest.param("dbfs:/lake", "dbfs:/lake", id="a URI of Databricks"),
    ],
)
def test_a_relative_root_is_relative_to_the_file_that_has_it_wherever_one_stands(
    tmp_path: Path, elsewhere: Path, root: str, expected: str
) -> None:
    file = written(tmp_path / "conf", root)
    for path in (file, Path("../conf/my.toml")):
        assert load_config(path, {"NAME": "x"}).lake.root == expected.format(folder=tmp_path)


def test_a_root_above_a_linked_folder_is_one_lake_whichever_name_of_the_folder_is_used(
    tmp_path: Path, elsewhere: Path
) -> None:
    written(tmp_path / "conf", "../lake")
    (elsewhere / "linked").symlink_to(tmp_path / "conf")
    for path in (Path("linked/my.toml"), elsewhere / "linked" / "my.toml", tmp_path / "conf" / "my.toml"):
        assert load_config(path, {}).lake.root == f"{tmp_path}/lake"


def test_a_linked_file_has_the_folder_of_the_link_as_in_a_config_map_of_kubernetes(
    tmp_path: Path, elsewhere: Path
) -> None:
    (tmp_path / "mount").mkdir()
    written(tmp_path / "mount" / "..data", "lake")
    (tmp_path / "mount" / "my.toml").symlink_to("..data/my.toml")
    assert load_config(tmp_path / "mount" / "my.toml", {}).lake.root == f"{tmp_path}/mount/lake"


def test_a_deleted_current_folder_has_no_second_lake_and_no_relative_one(tmp_path: Path, elsewhere: Path) -> None:
    file = written(tmp_path / "conf", "lake")
    elsewhere.rmdir()
    assert load_config(file, {}).lake.root == f"{tmp_path}/conf/lake"
    with pytest.raises(ConfigError) as refused:
        load_config(file, {}, "./lake")
    assert str(refused.value) == (
        "the location of a lake is relative to the current folder, which is not there any more: write an absolute path"
    )


def test_a_relative_lake_of_the_command_line_is_relative_to_the_current_folder(tmp_path: Path, elsewhere: Path) -> None:
    file = written(tmp_path / "conf", "/lake")
    assert load_config(file, {}, "a/lake").lake.root == f"{elsewhere}/a/lake"
    assert lake_at("./lake").root == f"{elsewhere}/lake"


def test_the_config_of_the_checkout_has_its_lake_in_build(elsewhere: Path) -> None:
    assert load_config(ROOT / "conf" / "local.toml", {}).lake.root == f"{ROOT}/build/lake"


@pytest.mark.parametrize(
    ("of_the_file", "said"),
    [
        (True, "both {file} and {here} have a lake"),
        (False, "there is no lake at {file}, but one at {here}"),
    ],
)
def test_a_lake_of_the_current_folder_that_the_same_root_would_name_is_refused(
    tmp_path: Path, elsewhere: Path, of_the_file: bool, said: str
) -> None:
    file = written(tmp_path / "conf", "lake")
    assert load_config(file, {}).lake.root == f"{tmp_path}/conf/lake", "nowhere is a lake yet"
    make_lake(elsewhere / "lake")
    if of_the_file:
        make_lake(tmp_path / "conf" / "lake")
    with pytest.raises(ConfigError) as refused:
        load_config(file, {})
    here = f"{elsewhere}/lake (relative to the current folder)"
    places = said.format(file=f"{tmp_path}/conf/lake (relative to this file)", here=here)
    todo = "name the right one with --lake, or write it as an absolute path"
    assert str(refused.value) == f"{file}: lake.root: {places}: {todo}"
    assert load_config(file, {}, "lake").lake.root == f"{elsewhere}/lake"


def test_one_lake_under_two_names_is_not_refused(tmp_path: Path, elsewhere: Path) -> None:
    file = written(tmp_path / "conf", "lake")
    make_lake(tmp_path / "conf" / "lake")
    (elsewhere / "lake").symlink_to(tmp_path / "conf" / "lake")
    assert load_config(file, {}).lake.root == f"{tmp_path}/conf/lake"


@pytest.mark.parametrize(
    ("root", "why"),
    [
        ("~/lake", "must not begin with ~, which only a shell replaces: write the whole path"),
        ("file:lake", "must be absolute after file:, such as file:///lake"),
    ],
)
def test_a_root_that_looks_relative_to_something_else_is_refused(
    tmp_path: Path, elsewhere: Path, root: str, why: str
) -> None:
    file = written(tmp_path / "conf", root)
    with pytest.raises(ConfigError) as refused:
        load_config(file, {})
    assert str(refused.value) == f"{file}: lake.root: {why}"
    with pytest.raises(ConfigError, match="the location of a lake must "):
        lake_at(root)


PATHS = """
log_dirs = ["logs", "/mnt/kafka", "s3://kafka-logs/1"]
[clusters.{name}.client]
ssl_cafile = "ca.pem"
ssl_certfile = "../client.pem"
ssl_keyfile = "/etc/client.key"
[[clusters.{name}.positions]]
source = "kafka_request_log"
paths = ["request.log", "/logs", "s3://logs/1"]
state = "state"
topics_file = "topics.csv"
[[clusters.{name}.positions]]
source = "kafka_client_metrics"
endpoints = ["https://app:1/metrics"]
ca_file = "app-ca.pem"
"""


def paths_of(config: Config, name: str) -> list[object]:
    cluster = config.clusters[name]
    log, metrics = cluster.positions
    client = cluster.client.options()
    named = [client[f"ssl_{kind}"] for kind in ("cafile", "certfile", "keyfile")]
    return [*cluster.log_dirs, *named, *log.paths, log.state, log.topics_file, metrics.ca_file, *metrics.endpoints]


def test_all_paths_of_a_file_are_relative_to_it_also_those_of_an_included_file(tmp_path: Path, elsewhere: Path) -> None:
    conf = tmp_path / "conf"
    file = written(conf, "lake")
    channel = '[channels.chat]\ntype = "webhook"\nurl = "https://chat"\nca_file = "chat-ca.pem"\n'
    shared = '[defaults]\nlog_dirs = ["shared-logs"]\n'
    file.write_text(f'include = "clusters"\n{file.read_text()}{PATHS.format(name="east")}{channel}{shared}')
    (conf / "clusters").mkdir()
    west = '[clusters.west]\nbootstrap_servers = ["w:9092"]\n'
    (conf / "clusters" / "west.toml").write_text(west + PATHS.format(name="west"))
    north = '[clusters.north]\nbootstrap_servers = ["n:9092"]\n'
    (conf / "clusters" / "north.toml").write_text(north)
    config = load_config(file, {})
    for name, folder in (("east", conf), ("west", conf / "clusters")):
        assert paths_of(config, name) == [
            f"{folder}/logs",
            "/mnt/kafka",
            "s3://kafka-logs/1",
            f"{folder}/ca.pem",
            f"{folder.parent}/client.pem",
            "/etc/client.key",
            f"{folder}/request.log",
            "/logs",
            "s3://logs/1",
            f"{folder}/state",
            f"{folder}/topics.csv",
            f"{folder}/app-ca.pem",
            "https://app:1/metrics",
        ]
    assert config.clusters["north"].log_dirs == (f"{conf}/shared-logs",)
    assert config.channels["chat"].ca_file == f"{conf}/chat-ca.pem"
