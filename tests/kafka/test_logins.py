"""Each way to log in, on a real broker: right ones are read, wrong ones get one line that says what to change."""

import logging
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobs import doctor, run
from pipeline.config import ClusterConfig, load_config
from pipeline.config.kafka_client import ClientConfig
from pipeline.kafka.committed_offsets import CommittedOffsetsSource
from pipeline.kafka.doctor import check_cluster
from pipeline.lake import Lake
from pipeline.tables import SNAPSHOTS, TABLES
from tests.helpers.kafka import read
from tests.helpers.logins import (
    KEY_PASSWORD,
    MARK,
    WRONG_PASSWORD,
    Case,
    Logins,
    broker_with_logins,
    login,
    options_of,
    servers_of,
    write_logins,
)
from tests.helpers.network import failed_handshakes
from tests.helpers.quiet import expected_lag, lag_rows, seed

PREFIX = "logins"
SECRET = re.compile(rf".{{0,80}}{MARK}.{{0,9}}", re.DOTALL)
TLS = {"security_protocol": "SSL", "ssl_cafile": "$ca"}
MUTUAL = TLS | {
    "ssl_certfile": "$client_certificate",
    "ssl_keyfile": "$client_key",
    "ssl_password": KEY_PASSWORD,
}
PLAIN, SCRAM_256, SCRAM_512 = "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"
RIGHT = {
    "plaintext": Case("PLAINTEXT", {}),
    "tls": Case("TLS", TLS),
    "mutual-tls": Case("MUTUAL", MUTUAL),
    **{f"{m.lower()}-sasl-plaintext": Case("LOGIN", login(m, "SASL_PLAINTEXT")) for m in (PLAIN, SCRAM_256, SCRAM_512)},
    **{f"{m.lower()}-sasl-ssl": Case("LOGINTLS", login(m)) for m in (PLAIN, SCRAM_256, SCRAM_512)},
}
CHECK_USER = "rejects the login: check sasl_plain_username and sasl_plain_password"
WRONG = {
    **{
        f"{m.lower()}-{listener.lower()}-{what}": Case(
            listener,
            login(m, protocol, **changes),
            CHECK_USER + ("" if m == PLAIN else f", and that the user has a password for {m}"),
        )
        for m in (PLAIN, SCRAM_256, SCRAM_512)
        for listener, protocol in (("LOGIN", "SASL_PLAINTEXT"), ("LOGINTLS", "SASL_SSL"))
        for what, changes in (
            ("wrong-password", {"sasl_plain_password": WRONG_PASSWORD}),
            ("unknown-user", {"sasl_plain_username": "nobody"}),
        )
    },
    "wrong-mechanism": Case(
        "SCRAMONLY", login(SCRAM_256), "does not offer SCRAM-SHA-256: set sasl_mechanism to SCRAM-SHA-512"
    ),
    "untrusted": Case(
        "LOGINTLS",
        login(SCRAM_512, ssl_cafile="$other_ca"),
        "presents a TLS certificate that is not trusted: set ssl_cafile to the certificate of the authority that has "
        "signed it",
    ),
    "expired": Case(
        "EXPIRED",
        login(SCRAM_512),
        "presents a TLS certificate that has expired: renew it at the broker, if the clock of this machine is right",
    ),
    "wrong-host": Case(
        "ELSEWHERE",
        login(SCRAM_512),
        "presents a TLS certificate that is for other hosts: use the names that the certificate has in "
        "bootstrap_servers and in the brokers' advertised.listeners, or renew it",
    ),
    "no-certificate": Case("MUTUAL", TLS, "wants the certificate of a client: set ssl_certfile and ssl_keyfile"),
    **{
        f"mutual-{who}": Case(
            "MUTUAL",
            MUTUAL | {"ssl_certfile": f"${who}_certificate", "ssl_keyfile": f"${who}_key"},
            "refuses the certificate in ssl_certfile (SSLV3_ALERT_CERTIFICATE_UNKNOWN): an authority that the brokers "
            "trust must have signed it, and it must not have expired",
        )
        for who in ("stranger", "expired")
    },
    "wrong-key-password": Case(
        "MUTUAL",
        MUTUAL | {"ssl_password": WRONG_PASSWORD},
        "ssl_certfile and ssl_keyfile cannot be loaded: they must be a certificate and its key in PEM format, and "
        "ssl_password must be the password of that key",
    ),
}
PROTOCOLS = {
    "PLAINTEXT": ("PLAINTEXT", ""),
    "TLS": ("SSL", ""),
    "LOGIN": ("SASL_PLAINTEXT", "PLAIN or SCRAM-SHA-256 or SCRAM-SHA-512"),
    "LOGINTLS": ("SASL_SSL", "PLAIN or SCRAM-SHA-256 or SCRAM-SHA-512"),
}
CLIENTS = {
    "PLAINTEXT": {},
    "SSL": TLS,
    "SASL_PLAINTEXT": login(PLAIN, "SASL_PLAINTEXT"),
    "SASL_SSL": login(PLAIN),
}
WRONG |= {
    f"{wrong.lower().replace('_', '-')}-at-{right.lower().replace('_', '-')}": Case(
        listener,
        options,
        f"is a{'n' if right == 'SSL' else ''} {right} listener: set security_protocol to {right}"
        + (f", and sasl_mechanism to {mechanisms}" if mechanisms else ""),
    )
    for listener, (right, mechanisms) in PROTOCOLS.items()
    for wrong, options in CLIENTS.items()
    if wrong != right
}
READ_BY_A_RUN = ("mutual-tls", "scram-sha-512-sasl-ssl")
REFUSED_IN_A_RUN = ("plain-logintls-wrong-password", "expired", "no-certificate", "sasl-plaintext-at-sasl-ssl")
"""Some logins of each kind: a run with all of them would take a minute, and all go the same way."""
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def logins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Logins]:
    """A broker that no other file shares: each of its listeners has its own kind of login."""
    with broker_with_logins(tmp_path_factory.mktemp("logins")) as found:
        seed(found.kafka, PREFIX)
        yield found


def expected(name: str, case: Case, logins: Logins) -> str:
    """The line about a wrong login. It names the server, unless this machine is at fault."""
    return case.said if name == "wrong-key-password" else f"{servers_of(case, logins)} {case.said}"


@pytest.fixture
def configured(logins: Logins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Mapping[str, Case]], Path]:
    """Writes a config with a cluster for each case, and sets the variables with their secrets."""

    def configure(cases: Mapping[str, Case]) -> Path:
        file, variables = write_logins(tmp_path, cases, logins, PREFIX)
        for name, text in variables.items():
            monkeypatch.setenv(name, text)
        return file

    return configure


def test_doctor_says_in_one_line_what_to_change(
    logins: Logins, configured: Callable[[Mapping[str, Case]], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    file = configured(WRONG)
    with failed_handshakes():
        assert doctor.main(["--config", str(file)]) == 1
    output = capsys.readouterr()
    lines = [line for line in output.out.splitlines() if line.startswith("WRONG ")]
    said = dict(line.removeprefix("WRONG ").split(": ", 1) for line in lines)
    assert said == {name: expected(name, case, logins) for name, case in WRONG.items()}
    assert SECRET.findall(output.out + output.err) == []


def test_doctor_finds_nothing_wrong_with_right_logins(
    configured: Callable[[Mapping[str, Case]], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    file = configured(RIGHT)
    assert doctor.main(["--config", str(file)]) == 0
    assert "nothing is wrong" in capsys.readouterr().out


def test_doctor_says_what_is_wrong_at_an_advertised_listener(logins: Logins) -> None:
    """As behind a load balancer: the certificate has the name of the bootstrap server alone."""
    advertised = logins.kafka.listener("BOOTSTRAP")
    cluster = ClusterConfig(
        bootstrap_servers=(advertised.replace("127.0.0.1", "localhost"),),
        client=ClientConfig(**options_of(Case("BOOTSTRAP", TLS), logins)),
    )
    with failed_handshakes():
        connected, wrong = check_cluster(cluster)
    assert connected.is_right
    assert wrong.what == f"broker 1 at {advertised}, its advertised listener, {WRONG['wrong-host'].said}"


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_login_reads_commits(logins: Logins, name: str) -> None:
    options = options_of(RIGHT[name], logins) | {"groups_allow": f"^{PREFIX}-billing"}
    rows = read(CommittedOffsetsSource, servers_of(RIGHT[name], logins), **options)
    assert [(row["partition"], row["committed_offset"]) for row in rows] == [(0, 2), (1, 5)]


@contextmanager
def watched_command_lines(found: set[str]) -> Iterator[None]:
    """Collects the command lines of all processes, as `ps` shows them."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.2):
            for file in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):
                    found.add(file.read_bytes().replace(b"\0", b" ").decode(errors="replace"))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def test_a_run_reads_right_logins_says_what_is_wrong_with_others_and_shows_no_secret(
    spark: SparkSession,
    logins: Logins,
    configured: Callable[[Mapping[str, Case]], Path],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    right = {name: RIGHT[name] for name in READ_BY_A_RUN}
    wrong = {name: WRONG[name] for name in REFUSED_IN_A_RUN}
    file = configured(right | wrong)
    for logger in ("kafka", "pipeline", "urllib3"):
        caplog.set_level(logging.DEBUG, logger=logger)
    command_lines: set[str] = set()
    report = tmp_path / "report.html"
    with watched_command_lines(command_lines):
        assert run.main(["--config", str(file), "--output", str(report)]) == 0
    lake = Lake(spark, load_config(file, os.environ).lake)
    ledger = {row["cluster"]: row for row in lake.frame(SNAPSHOTS).collect()}
    assert {name: row["status"] for name, row in ledger.items()} == (
        dict.fromkeys(right, "complete") | dict.fromkeys(wrong, "failed")
    )
    for name in right:
        assert lag_rows(lake, name) == expected_lag(PREFIX)
    for name, case in wrong.items():
        (line,) = [line for line in caplog.messages if line.startswith(f"{name} ") and ": failed: " in line]
        assert line.endswith(expected(name, case, logins))
    said = [*capfd.readouterr(), caplog.text, report.read_text(), *command_lines]
    said += [str(lake.frame(table).collect()) for table in TABLES]
    assert any("pyspark" in line for line in command_lines)
    assert SECRET.findall("\n".join(said)) == []
