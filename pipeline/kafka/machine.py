"""Checks what the client needs on this machine: Python packages, and TLS files."""

from __future__ import annotations

import os
import ssl
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from pipeline.common.errors import ClusterError
from pipeline.kafka.options import SourceOptions

_PACKAGES = {"AWS_MSK_IAM": "botocore", "GSSAPI": "gssapi"}
"""Packages that kafka-python needs for a mechanism, but does not install."""
_FILES = ("ssl_cafile", "ssl_certfile", "ssl_keyfile")

_Version = tuple[int, int, int]


def check_machine(options: SourceOptions) -> None:
    """Raises ClusterError if a package or a file is missing here, so that no broker is blamed for it."""
    mechanism = options.client.get("sasl_mechanism", "") if _protocol(options).startswith("SASL") else ""
    package = _PACKAGES.get(mechanism)
    if options.client.get("sasl_aws_access_key_id"):  # kafka-python signs with keys that are given
        package = None
    if package and not find_spec(package):
        raise ClusterError(f"{mechanism} needs the Python package {package}: install it here and on executors")
    if mechanism == "OAUTHBEARER" and (authority := options.client.get("sasl_oauthbearer_ca_file")):
        _version("sasl_oauthbearer_ca_file", authority)
    tls_context(options)


def tls_context(options: SourceOptions) -> ssl.SSLContext | None:
    """A context with the files of the `ssl_` options, which trusts every server; None if the options want no TLS.

    Raises ClusterError if a file cannot be used. It names the option and not its value, which may be a pasted key.
    """
    if not _protocol(options).endswith("SSL"):
        return None
    authority, certificate, key = (options.client.get(name) for name in _FILES)
    key = key if certificate else None  # kafka-python ignores a key without a certificate
    versions = tuple(_version(n, file) for n, file in zip(_FILES, (authority, certificate, key), strict=True) if file)
    return _context(authority, certificate, key, options.client.get("ssl_password") or "", versions)


def bare_context() -> ssl.SSLContext:
    """A context that trusts every server, and has no certificate of a client."""
    return _context(None, None, None, "", ())


@lru_cache(maxsize=16)
def _context(
    authority: str | None, certificate: str | None, key: str | None, password: str, _versions: tuple[_Version, ...]
) -> ssl.SSLContext:
    """The context. It is kept until one of the files changes, because OpenSSL needs 15 ms for a usual `ssl_cafile`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        if authority:
            context.load_verify_locations(authority)
    except ssl.SSLError:
        raise ClusterError(
            "the file of ssl_cafile has no certificate in PEM format: convert it, if it is a Java truststore"
        ) from None
    try:
        if certificate:
            # With a password, even an empty one, OpenSSL does not ask the terminal for one.
            context.load_cert_chain(certificate, key, password)
    except ssl.SSLError:
        raise ClusterError(
            "ssl_certfile and ssl_keyfile cannot be loaded: they must be a certificate and its key in PEM format, and "
            "ssl_password must be the password of that key"
        ) from None
    return context


def _protocol(options: SourceOptions) -> str:
    return str(options.client.get("security_protocol", "PLAINTEXT"))


def _version(name: str, file: str) -> _Version:
    """A file's inode, modification time and size, which change with its content. Raises ClusterError if unreadable."""
    try:
        with Path(file).open("rb") as opened:
            found = os.fstat(opened.fileno())
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not a path"
        raise ClusterError(f"the file of {name} cannot be read ({why}): it must be here and on executors") from None
    return found.st_ino, found.st_mtime_ns, found.st_size
