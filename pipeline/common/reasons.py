"""Why an endpoint or file cannot be read, in words. An error's own message is not shown: it may contain a password."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterator
from http.client import RemoteDisconnected

from requests.exceptions import InvalidSchema, InvalidURL, MissingSchema, Timeout
from urllib3.exceptions import LocationParseError

_WORDS: tuple[tuple[tuple[type[BaseException], ...], str], ...] = (
    ((InvalidURL, InvalidSchema, MissingSchema, LocationParseError), "is not a URL with http or https"),
    ((socket.gaierror,), "unknown host"),
    ((TimeoutError, Timeout), "no answer in time"),
    (
        (ssl.SSLCertVerificationError,),
        "presents a TLS certificate that is not trusted: check ca_file, and that the certificate names this host",
    ),
    ((RemoteDisconnected,), "closes the connection without an answer"),
)


def why_unreadable(error: BaseException) -> str:
    """The reason in words, by the first known type among an error and its causes; else the name of the error's type."""
    return next(filter(None, map(_reason, _causes(error))), type(error).__name__)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _reason(error: BaseException) -> str | None:
    return next((words for types, words in _WORDS if isinstance(error, types)), None) or _of_system(error)


def _of_system(error: BaseException) -> str | None:
    """The operating system's words for an error, or OpenSSL's."""
    if isinstance(error, ssl.SSLError):
        is_ours = error.reason == "NO_CERTIFICATE_OR_CRL_FOUND"
        handshake = f"fails the TLS handshake ({error.reason})"
        return "the file of ca_file has no certificate in PEM format" if is_ours else handshake
    number = error.errno if isinstance(error, OSError) else None
    return os.strerror(number) if number else None
