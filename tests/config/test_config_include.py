"""Many clusters: common settings are written once, and each cluster may have its own file."""

import os
from pathlib import Path

import pytest

from pipeline.common.errors import ConfigError
from pipeline.config import Config, load_config
from pipeline.kafka.options import SourceOptions
from tests.conftest import ROOT

LAKE = '[lake]\nroot = "/lake"\n'
EAST = '[clusters.east]\nbootstrap_servers = ["e:9092"]\n'


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with `laglake.toml`, which includes `clusters/`."""
    (tmp_path / "clusters").mkdir()
    (tmp_path / "laglake.toml").write_text(f'include = "clusters"\n{LAKE}')
    return tmp_path


def load(folder: Path, **env: str) -> Config:
    return load_config(folder / "laglake.toml", env)


def refused(folder: Path, **env: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(folder, **env)
    return str(caught.value).replace(f"{folder}/", "").split("\n")


def test_a_cluster_has_the_defaults_for_keys_that_its_own_table_does_not_set(files: Path) -> None:
    (files / "laglake.toml").write_text(
        f"""{LAKE}
        [defaults]
        index_lookups = 5
        groups = {{ allow = ["^app"], deny = ["^console-"] }}
        [defaults.limits]
        connect_timeout = "1s"
        request_timeout = "2s"
        [defaults.client]
        security_protocol = "SASL_SSL"
        sasl_mechanism = "PLAIN"
        sasl_plain_username = "laglake"
        sasl_plain_password = "${{env:SECRET}}"
        {EAST}
        [clusters.west]
        bootstrap_servers = ["w:9092"]
        index_lookups = 0
        groups = {{ deny = [] }}
        limits = {{ request_timeout = "9s" }}
        client = {{ sasl_plain_username = "other" }}
        """
    )
    config = load(files, SECRET="s3cret")
    east, west = config.clusters["east"], config.clusters["west"]
    assert (east.index_lookups, west.index_lookups) == (5, 0)
    assert (east.groups.allow, east.groups.deny) == (("^app",), ("^console-",))
    assert (west.groups.allow, west.groups.deny) == (("^app",), ())
    assert (east.limits.connect_timeout_ms, east.limits.request_timeout_ms) == (1000, 2000)
    assert (west.limits.connect_timeout_ms, west.limits.request_timeout_ms) == (1000, 9000)
    assert east.client.options()["sasl_plain_username"] == "laglake"
    assert west.client.options() == east.client.options() | {"sasl_plain_username": "other"}
    assert west.client.options()["sasl_plain_password"] == "s3cret"


def test_clusters_and_clients_are_read_from_the_files_of_a_folder(files: Path) -> None:
    with (files / "laglake.toml").open("a") as file:
        file.write("[defaults]\nindex_lookups = 7\n[clusters.own]\nbootstrap_servers = ['o:1']\n")
    (files / "clusters" / "b.toml").write_text(EAST)
    (files / "clusters" / "a.toml").write_text(
        '[clusters.west]\nbootstrap_servers = ["${env:WEST}:9092"]\n[clients."app"]\n"fetch.max.bytes" = 1000\n'
    )
    (files / "clusters" / ".b.toml.swp.toml").write_text("no TOML at all")
    (files / "clusters" / "README.md").write_text("no TOML at all")
    config = load(files, WEST="w")
    assert list(config.clusters) == ["own", "west", "east"]
    assert {name: cluster.bootstrap_servers for name, cluster in config.clusters.items()} == {
        "own": ("o:1",),
        "west": ("w:9092",),
        "east": ("e:9092",),
    }
    assert {cluster.index_lookups for cluster in config.clusters.values()} == {7}
    assert list(config.clients) == ["app"]


def test_each_mistake_is_reported_once_with_its_file_and_key(files: Path) -> None:
    with (files / "laglake.toml").open("a") as file:
        file.write(
            '[defaults]\nindex_lookups = -1\n[defaults.limits]\nconect_timeout = "1s"\n'
            '[clusters.own]\nbootstrap_servers = ["o:1"]\nindex_lookup = 3\n'
        )
    (files / "clusters" / "east.toml").write_text(EAST + 'log_dirs = "x"\n[clusters.east.limits]\nretries = "no"\n')
    (files / "clusters" / "west.toml").write_text('[clusters.west]\nindex_lookups = -2\n[clients."x"]\nwrong = 1\n')
    assert sorted(refused(files)) == [
        "clusters/east.toml: clusters.east.limits.retries: must be a whole number",
        "clusters/east.toml: clusters.east.log_dirs: must be a list",
        "clusters/west.toml: clients.x.wrong: unknown key",
        "clusters/west.toml: clusters.west.bootstrap_servers: is required",
        "clusters/west.toml: clusters.west.index_lookups: must be 0 or more",
        "laglake.toml: clusters.own.index_lookup: unknown key; did you mean index_lookups?",
        "laglake.toml: defaults.index_lookups: must be 0 or more",
        "laglake.toml: defaults.limits.conect_timeout: unknown key; did you mean connect_timeout?",
    ]


def test_two_files_cannot_have_the_same_cluster(files: Path) -> None:
    (files / "clusters" / "a.toml").write_text(EAST)
    (files / "clusters" / "b.toml").write_text(EAST)
    assert refused(files) == ["clusters/b.toml: clusters.east: is already defined in clusters/a.toml"]
    with (files / "laglake.toml").open("a") as file:
        file.write(EAST)
    assert refused(files) == [
        f"clusters/{name}.toml: clusters.east: is already defined in laglake.toml" for name in "ab"
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[lake]\nroot = '/b'\n", "lake: an included file has only [clusters.X] and [clients.X]"),
        ("clusters = 5\n", "clusters: an included file has only [clusters.X] and [clients.X]"),
        ("[clusters.x", "is not TOML: "),
        ('[clusters.x]\nbootstrap_servers = ["${env:NO}"]\n', "clusters.x.bootstrap_servers[0]: the environment "),
    ],
)
def test_an_error_names_the_included_file(files: Path, text: str, why: str) -> None:
    (files / "clusters" / "a.toml").write_text(text)
    (line,) = refused(files)
    assert line.startswith(f"clusters/a.toml: {why}")


def test_a_cluster_must_be_read_before_its_claim_ends(files: Path) -> None:
    text = f'{LAKE}[snapshot]\nmax_duration = "10m"\n{EAST}'
    (files / "laglake.toml").write_text(text)
    why = "laglake.toml: limits.read_timeout of cluster east must be less than snapshot.max_duration"
    assert refused(files) == [why]
    (files / "laglake.toml").write_text(f'{text}limits = {{ read_timeout = "9m" }}\n')
    assert load(files).clusters["east"].limits.read_timeout_ms == 540_000


def test_all_wrong_files_are_reported_together(files: Path) -> None:
    (files / "clusters" / "a.toml").write_text("[clusters.a]\nbootstrap_servers = ['${env:A}']\n")
    (files / "clusters" / "b.TOML").write_text("x = " + "1" * 5000)
    os.mkfifo(files / "clusters" / "c.toml")
    (files / "clusters" / "d.toml").write_bytes(b"\xef\xbb\xbf" + EAST.encode())
    assert refused(files) == [
        "clusters/a.toml: clusters.a.bootstrap_servers[0]: the environment variable A is not set",
        "clusters/b.TOML: a number has too many digits",
        "clusters/c.toml: must be a file of at most 1 MB",
    ]


def test_a_key_missing_in_defaults_is_reported_for_defaults(files: Path) -> None:
    with (files / "laglake.toml").open("a") as file:
        file.write("[[defaults.positions]]\nendpoints = ['http://a:1']\n")
    (files / "clusters" / "a.toml").write_text(EAST)
    (files / "clusters" / "b.toml").write_text(EAST.replace("east", "west"))
    assert refused(files) == ["laglake.toml: defaults.positions[0].source: is required"]


def test_an_included_folder_without_files_is_an_error(files: Path) -> None:
    assert refused(files) == ["laglake.toml: include: clusters has no *.toml"]


def test_a_missing_included_folder_is_an_error(files: Path) -> None:
    (files / "clusters").rmdir()
    assert refused(files) == ["laglake.toml: include: clusters: cannot be read: No such file or directory"]


@pytest.mark.parametrize("value", ["5", '""', "['a']"])
def test_include_must_be_the_name_of_a_folder(files: Path, value: str) -> None:
    (files / "laglake.toml").write_text(f"include = {value}\n{LAKE}{EAST}")
    (line,) = refused(files)
    assert line.startswith("laglake.toml: include: must ")


@pytest.mark.parametrize("value", ["5", "[1]"])
def test_defaults_must_be_a_table(files: Path, value: str) -> None:
    (files / "laglake.toml").write_text(f"defaults = {value}\n{LAKE}{EAST}")
    assert refused(files) == ["laglake.toml: defaults: must be a table"]


def test_the_examples_of_usual_clusters_are_valid(files: Path) -> None:
    (files / "laglake.toml").write_text(f'include = "{ROOT}/conf/examples"\n{LAKE}')
    env = {"CONFLUENT_API_KEY": "key", "CONFLUENT_API_SECRET": "s", "CLIENT_KEY_PASSWORD": "p", "MSK_PASSWORD": "p"}
    env |= {"OAUTH_CLIENT_ID": "id", "OAUTH_CLIENT_SECRET": "s"}
    clusters = load(files, **env).clusters
    assert {name: (c.client.options()["security_protocol"]) for name, c in clusters.items()} == {
        "confluent-cloud": "SASL_SSL",
        "confluent-cloud-oauth": "SASL_SSL",
        "kerberos": "SASL_SSL",
        "msk": "SASL_SSL",
        "msk-scram": "SASL_SSL",
        "mutual-tls": "SSL",
        "oauth": "SASL_SSL",
    }
    for cluster in clusters.values():
        options = SourceOptions.parse(cluster.source_options())
        assert options.client["security_protocol"] == cluster.client.options()["security_protocol"]
