"""A broker with a listener for each kind of login, and what a client needs for each of them."""

import json
import os
import string
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import trustme

from demo.embedded_kafka.broker import EmbeddedKafka
from demo.embedded_kafka.nodes import Listener, jaas_of_plain
from tests.helpers.certificates import authority_file, client_files, signed

USER = "reader"
MARK = f"s3cret-of-{os.getpid()}"
"""A part of each secret. It is not that of another test run on this machine, whose processes a test may see."""
PLAIN_PASSWORD = f'pl"ain-{MARK}\\#1'
SCRAM_PASSWORD = f"scram-{MARK}"
KEY_PASSWORD = f"key-{MARK}"
WRONG_PASSWORD = f"wr0ng-{MARK}"
SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


class Logins(NamedTuple):
    """The broker, and the files of a client: by the names that cases use for them."""

    kafka: EmbeddedKafka
    files: Mapping[str, str]


class Case(NamedTuple):
    """A listener, the client options for it, in which `$name` is a file, and what laglake says if they are wrong."""

    listener: str
    options: Mapping[str, str]
    said: str = ""


@contextmanager
def broker_with_logins(folder: Path) -> Iterator[Logins]:
    """One broker whose listeners are named in `listeners`, and the files of a client."""
    authority, other = trustme.CA(), trustme.CA()
    trusted = authority_file(authority, folder / "ca.pem")
    files = {"ca": str(trusted), "other_ca": str(authority_file(other, folder / "other.pem"))}
    clients = {"client": (authority, False), "stranger": (other, False), "expired": (authority, True)}
    for name, (signer, is_expired) in clients.items():
        made = client_files(signer, folder / name, KEY_PASSWORD, is_expired=is_expired)
        files |= {f"{name}_certificate": made["ssl_certfile"], f"{name}_key": made["ssl_keyfile"]}
    good = signed(authority, folder / "good.pem")
    expired = signed(authority, folder / "expired-server.pem", is_expired=True)
    elsewhere = signed(authority, folder / "elsewhere.pem", "kafka.example")
    bootstrap_only = signed(authority, folder / "bootstrap-only.pem", "localhost")
    wants_certificate = {
        "ssl.client.auth": "required",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(trusted),
    }
    listeners = {
        "LOGIN": Listener("SASL_PLAINTEXT", _sasl("PLAIN,SCRAM-SHA-256,SCRAM-SHA-512")),
        "LOGINTLS": Listener("SASL_SSL", _sasl("PLAIN,SCRAM-SHA-256,SCRAM-SHA-512") | _tls(good)),
        "SCRAMONLY": Listener("SASL_SSL", _sasl("SCRAM-SHA-512") | _tls(good)),
        "TLS": Listener("SSL", _tls(good)),
        "MUTUAL": Listener("SSL", _tls(good) | wants_certificate),
        "EXPIRED": Listener("SASL_SSL", _sasl("SCRAM-SHA-512") | _tls(expired)),
        "BOOTSTRAP": Listener("SSL", _tls(bootstrap_only)),
        "ELSEWHERE": Listener("SASL_SSL", _sasl("SCRAM-SHA-512") | _tls(elsewhere)),
    }
    scram = {USER: SCRAM_PASSWORD}
    with EmbeddedKafka(folder / "kafka", listeners=listeners, scram_users=scram) as kafka:
        yield Logins(kafka, files)


def _tls(certificate: Path) -> dict[str, str]:
    return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(certificate)}


def _sasl(mechanisms: str) -> dict[str, str]:
    return {
        "sasl.enabled.mechanisms": mechanisms,
        "plain.sasl.jaas.config": jaas_of_plain({USER: PLAIN_PASSWORD}),
        "scram-sha-256.sasl.jaas.config": SCRAM_LOGIN,
        "scram-sha-512.sasl.jaas.config": SCRAM_LOGIN,
    }


def login(mechanism: str, protocol: str = "SASL_SSL", **changes: str) -> dict[str, str]:
    """The options of the broker's user."""
    return {
        "security_protocol": protocol,
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": PLAIN_PASSWORD if mechanism == "PLAIN" else SCRAM_PASSWORD,
        **({"ssl_cafile": "$ca"} if protocol == "SASL_SSL" else {}),
        **changes,
    }


def options_of(case: Case, logins: Logins) -> dict[str, str]:
    """The client options of a case, with the files of the client."""
    return {name: string.Template(text).safe_substitute(logins.files) for name, text in case.options.items()}


def servers_of(case: Case, logins: Logins) -> str:
    """host:port of the listener of a case."""
    kafka = logins.kafka
    return kafka.bootstrap_servers if case.listener == "PLAINTEXT" else kafka.listener(case.listener)


def write_logins(folder: Path, cases: Mapping[str, Case], logins: Logins, selected: str) -> tuple[Path, dict[str, str]]:
    """A config with a cluster for each case, whose secrets are in variables, and these variables.

    Only names that begin with `selected` are read.
    """
    lines = [f'[lake]\nroot = "{folder}/lake"\n[snapshot]\nschedule = "1s"\n']
    variables: dict[str, str] = {}
    for number, (name, case) in enumerate(cases.items()):
        lines.append(
            f'[clusters.{name}]\nbootstrap_servers = ["{servers_of(case, logins)}"]\n'
            f'groups = {{ allow = ["^{selected}"] }}\ntopics = {{ allow = ["^{selected}"] }}\n'
            f"[clusters.{name}.client]\n"
        )
        for option, text in options_of(case, logins).items():
            value = text
            if option.endswith(("password", "secret")):
                variables[f"SECRET_{number}"] = text
                value = f"${{env:SECRET_{number}}}"
            lines.append(f"{option} = {json.dumps(value)}\n")
    file = folder / "laglake.toml"
    file.write_text("".join(lines))
    return file, variables
