"""Certificates for tests: an authority, and what it signs, in files as Kafka and Python's ssl read them."""

import datetime as dt
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization

HOST = "127.0.0.1"


def authority_file(authority: trustme.CA, file: Path) -> Path:
    """Writes the authority's own certificate, for `ssl_cafile` and for truststores."""
    authority.cert_pem.write_to_path(file)
    return file


def signed(authority: trustme.CA, file: Path, name: str = HOST, *, is_expired: bool = False) -> Path:
    """Writes a key, which must be in PKCS #8 for Kafka, and a certificate of the host `name`."""
    leaf = _issued(authority, name, is_expired=is_expired)
    file.write_bytes(_pkcs8(leaf, serialization.NoEncryption()) + _chain(leaf))
    return file


def client_files(authority: trustme.CA, folder: Path, password: str, *, is_expired: bool = False) -> dict[str, str]:
    """The client options for mutual TLS: the files of a certificate and of its encrypted key, and the password."""
    leaf = _issued(authority, "laglake.example", is_expired=is_expired)
    folder.mkdir()
    certificate, key = folder / "client.pem", folder / "client.key"
    certificate.write_bytes(_chain(leaf))
    key.write_bytes(_pkcs8(leaf, serialization.BestAvailableEncryption(password.encode())))
    return {"ssl_certfile": str(certificate), "ssl_keyfile": str(key), "ssl_password": password}


def _issued(authority: trustme.CA, name: str, *, is_expired: bool) -> trustme.LeafCert:
    now = dt.datetime.now(dt.UTC)
    not_after = now - dt.timedelta(days=1) if is_expired else None
    not_before = now - dt.timedelta(days=2)
    return authority.issue_cert(name, common_name="laglake", not_before=not_before, not_after=not_after)


def _chain(leaf: trustme.LeafCert) -> bytes:
    return b"".join(pem.bytes() for pem in leaf.cert_chain_pems)


def _pkcs8(leaf: trustme.LeafCert, encryption: serialization.KeySerializationEncryption) -> bytes:
    key = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), password=None)
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
