"""A local S3 server (moto), behind a proxy that fails in the ways of networks and stores."""

import http.client
import random
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import boto3
from botocore.config import Config
from deltalake import DeltaTable
from moto.server import ThreadedMotoServer

from tests.conftest import ROOT

HOST = "127.0.0.1"
BUCKET = "lake"
IGNORING = "ignoring"
"""A bucket that ignores conditions, like an old server."""
_OF_ONE_HOP = {"connection", "content-length", "date", "expect", "host", "server", "transfer-encoding"}


@dataclass
class S3:
    """The server. `lost` is which part of the answers to commits is lost after the server has stored them."""

    port: int = 0
    lost: float = 0.0
    answers_lost: int = 0

    @property
    def endpoint(self) -> str:
        """The endpoint for clients."""
        return f"http://{HOST}:{self.port}"

    def settings(self) -> dict[str, str]:
        """The Spark settings for this server."""
        return {
            "spark.hadoop.fs.s3a.endpoint": self.endpoint,
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.access.key": "key",
            "spark.hadoop.fs.s3a.secret.key": "secret",
            "spark.jars.packages": s3_packages(),
            "spark.jars.ivy": str(ROOT / "build" / "s3-connector"),
        }

    def read(self, key: str) -> str:
        """The text of an object."""
        text: str = self.client().get_object(Bucket=BUCKET, Key=key)["Body"].read().decode()
        return text

    def table(self, path: str) -> DeltaTable:
        """A table, as delta-rs reads it."""
        options = {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
        }
        return DeltaTable(f"s3://{BUCKET}/{path}", storage_options=options)

    def client(self) -> Any:
        """Amazon's own client."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            config=Config(s3={"addressing_style": "path"}),
            aws_access_key_id="key",
            aws_secret_access_key="secret",
            region_name="us-east-1",
        )


@contextmanager
def s3_server() -> Iterator[S3]:
    """The server with an empty bucket."""
    moto = ThreadedMotoServer(ip_address=HOST, port=0, verbose=False)
    moto.start()
    _, moto_port = moto.get_host_and_port()
    s3 = S3()
    proxy = ThreadingHTTPServer((HOST, 0), _handler(s3, moto_port))
    s3.port = proxy.server_port
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    try:
        for bucket in (BUCKET, IGNORING):
            s3.client().create_bucket(Bucket=bucket)
        yield s3
    finally:
        proxy.shutdown()
        proxy.server_close()
        moto.stop()


def s3_packages() -> str:
    """The packages of the connector, as in README."""
    found = re.search(r"--packages (\S*hadoop-aws\S*)", (ROOT / "README.md").read_text())
    assert found
    return found[1]


def _handler(s3: S3, moto_port: int) -> type[BaseHTTPRequestHandler]:
    dice = random.Random(1)
    # S3 creates an object on condition at once. moto looks first and creates afterwards, so two could succeed.
    one_at_a_time = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            sent = {name: value for name, value in self.headers.items() if name.lower() not in _OF_ONE_HOP}
            sent["Host"] = self.headers["Host"]
            if self.path.startswith(f"/{IGNORING}/"):
                sent.pop("If-None-Match", None)
            upstream = http.client.HTTPConnection(HOST, moto_port)
            with one_at_a_time if "If-None-Match" in sent else nullcontext():
                upstream.request(self.command, self.path, body, sent)
                answer = upstream.getresponse()
                content = answer.read()
            if "If-None-Match" in sent and answer.status == HTTPStatus.OK and dice.random() < s3.lost:
                s3.answers_lost += 1
                self.close_connection = True
                return
            self.send_response_only(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in _OF_ONE_HOP:
                    self.send_header(name, value)
            length = answer.getheader("Content-Length") if self.command == "HEAD" else None
            self.send_header("Content-Length", length or str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            upstream.close()

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass_on  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    return Handler
