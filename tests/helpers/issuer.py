"""A small issuer of tokens: the endpoint that clients ask (RFC 6749), and the key by which a broker checks a token."""

import base64
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

HOST = "127.0.0.1"
CLIENT_ID = "laglake-client"
CLIENT_SECRET = "t0ken-s3cret+/%"
AUDIENCE = "kafka"
NAME = "https://issuer.example"


class Issuer:
    """Issues tokens with a lifetime of `lifetime_s` to one client. Tests replace `answer` to make it fail.

    `requests` has the parameters of each request for a token, and `tokens` each token.
    """

    def __init__(self) -> None:
        self.lifetime_s = 300.0
        self.audience = AUDIENCE
        self.requests: list[dict[str, str]] = []
        self.tokens: list[str] = []
        self.answer: Callable[[BaseHTTPRequestHandler, dict[str, str]], None] = self.issue
        self._key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
        self.url = ""

    @contextmanager
    def serving(self, certificate: Path | None = None) -> Iterator["Issuer"]:
        """Serves on this machine, with TLS if there is a certificate."""
        with ThreadingHTTPServer((HOST, 0), self._handler()) as server:
            server.daemon_threads = True
            if certificate:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(certificate)
                server.socket = context.wrap_socket(server.socket, server_side=True)
            self.url = f"{'https' if certificate else 'http'}://{HOST}:{server.server_port}"
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
            yield self
            server.shutdown()

    @property
    def token_url(self) -> str:
        """The token endpoint."""
        return f"{self.url}/token"

    def write_keys(self, file: Path) -> Path:
        """Writes the public key, as a broker reads it (RFC 7517)."""
        public: Any = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self._key.public_key()))
        file.write_text(json.dumps({"keys": [public | {"kid": "one", "use": "sig", "alg": "RS256"}]}))
        return file

    def login(self, **changes: str) -> dict[str, str]:
        """The client options of the one client."""
        return {
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauthbearer_token_endpoint_url": self.token_url,
            "sasl_oauthbearer_client_id": CLIENT_ID,
            "sasl_oauthbearer_client_secret": CLIENT_SECRET,
            **changes,
        }

    def issue(self, request: BaseHTTPRequestHandler, parameters: dict[str, str]) -> None:
        """Answers a request as an issuer should."""
        expected = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
        if request.headers["Authorization"] != f"Basic {expected}":
            reply(request, 401, {"error": "invalid_client", "error_description": f"not {CLIENT_SECRET}"})
        elif parameters.get("grant_type") != "client_credentials":
            reply(request, 400, {"error": "unsupported_grant_type"})
        elif parameters.get("scope", "lag") != "lag":
            reply(request, 400, {"error": "invalid_scope"})
        else:
            token = self.token()
            reply(request, 200, {"access_token": token, "token_type": "Bearer", "expires_in": self.lifetime_s})

    def token(self) -> str:
        """A token that is valid from now on, for `lifetime_s`."""
        now = time.time()
        claims = {"sub": "laglake", "iss": NAME, "aud": self.audience, "scope": "lag"}
        claims |= {"iat": now, "exp": now + self.lifetime_s, "jti": str(len(self.tokens))}
        self.tokens.append(jwt.encode(claims, self._key, algorithm="RS256", headers={"kid": "one"}))
        return self.tokens[-1]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                parameters = {name: values[0] for name, values in parse_qs(body).items()}
                issuer.requests.append(parameters)
                issuer.answer(self, parameters)

            def log_message(self, *_: object) -> None:
                pass

        return Handler


def reply(request: BaseHTTPRequestHandler, status: int, content: object, kind: str = "application/json") -> None:
    """Answers with JSON, or with a text as it is."""
    body = content.encode() if isinstance(content, str) else json.dumps(content).encode()
    request.send_response(status)
    request.send_header("Content-Type", kind)
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)
