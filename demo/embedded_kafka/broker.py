"""A real Kafka in child processes, for the duration of a `with` block: no Docker, no installation.

with EmbeddedKafka(Path("build/kafka"), brokers=3) as kafka:
    print(kafka.bootstrap_servers)
    kafka.freeze(2)
"""

import base64
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from demo.embedded_kafka.broker_process import BrokerProcess
from demo.embedded_kafka.children import Children
from demo.embedded_kafka.class_archive import ensure_class_archive
from demo.embedded_kafka.cluster import START_TIMEOUT_S, Cluster
from demo.embedded_kafka.jars import kafka_jars
from demo.embedded_kafka.java_tools import JavaTools
from demo.embedded_kafka.nodes import Listener, Node, plan_nodes, render_properties, server_properties
from demo.embedded_kafka.readiness import wait_for_brokers, wait_for_coordinators


class EmbeddedKafka(Cluster):
    """Brokers 1 … n in KRaft mode. Node 1 is also the controller, so do not stop it.

    Everything is under `directory`: node-<id>/data (the logs), node-<id>/server.log, tools.log. It starts empty:
    the nodes' folders of an earlier start are removed. `properties` are added to every server.properties.
    `users` (name → password) may use `sasl_bootstrap_servers` (SASL_PLAINTEXT, PLAIN). With users, ACLs apply, and
    everything without an ACL is allowed to everyone. `heap_mb` is the heap limit of each broker. Each broker also has
    the `listeners`, by name; `scram_users` (name → password) may use those that have SCRAM.

    Raises, on entering:
        InUseError: another living process runs its Kafka in `directory`.
        JarsError: no Java, or the jars cannot be fetched.
        BrokerError: a broker died, or was not ready within 90 s.
    """

    def __init__(
        self,
        directory: Path,
        brokers: int = 1,
        properties: Mapping[str, str] | None = None,
        *,
        users: Mapping[str, str] | None = None,
        heap_mb: int = 512,
        listeners: Mapping[str, Listener] | None = None,
        scram_users: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory.absolute()
        self._count = brokers
        self._properties = dict(properties or {})
        self.users = dict(users or {})
        self._heap_mb = heap_mb
        self._listeners = dict(listeners or {})
        self._scram_users = dict(scram_users or {})

    def __enter__(self) -> Self:
        jars = kafka_jars()
        ensure_class_archive(jars)
        self.directory.mkdir(parents=True, exist_ok=True)
        self._children = Children(self.directory)
        self._announcement.unlink(missing_ok=True)  # left by a Kafka that was killed
        try:
            self._tools = JavaTools(jars, self.directory, self._children.marker)
            self._tools.write_log_configuration()
            nodes = plan_nodes(self.directory, self._count, self._listeners)
            self._brokers = {
                node.node_id: BrokerProcess(node, self._tools, self._children, self._heap_mb) for node in nodes
            }
            self._start_all(nodes, time.monotonic() + START_TIMEOUT_S)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kills brokers and tools; their data may be lost. A second call does nothing."""
        if not self._children.is_closed:  # otherwise another Kafka may already use the folder
            self._announcement.unlink(missing_ok=True)
            self._children.close()

    def announce(self) -> None:
        """Writes `bootstrap_servers` into a file of this name in the folder, which exists until Kafka ends.

        A script can wait for this file if it has started Kafka in the background.
        """
        scratch = self._announcement.with_suffix(".tmp")
        scratch.write_text(self.bootstrap_servers)
        scratch.rename(self._announcement)

    @property
    def _announcement(self) -> Path:
        return self.directory / "bootstrap-servers"

    def _start_all(self, nodes: Sequence[Node], deadline: float) -> None:
        for node in nodes:
            self._configure(node, nodes)
        # With a leading zero byte, because an id that starts with "-" would be taken for an option.
        cluster_id = base64.urlsafe_b64encode(b"\0" + os.urandom(15)).decode().rstrip("=")
        formatting = [(b, b.start_formatting(cluster_id, self._scram_users)) for b in self._brokers.values()]
        for broker, process in formatting:
            broker.finish_formatting(process, deadline - time.monotonic())
        for broker in self._brokers.values():
            broker.launch()
        for broker in self._brokers.values():
            broker.wait_until_listening(deadline)
        # __consumer_offsets is created at the first request for a coordinator, on the brokers that are known then.
        wait_for_brokers(self.bootstrap_servers, self.broker_ids, deadline)
        wait_for_coordinators(self.bootstrap_servers, deadline)

    def _configure(self, node: Node, nodes: Sequence[Node]) -> None:
        shutil.rmtree(node.directory, ignore_errors=True)
        node.directory.mkdir()
        properties = server_properties(node, nodes, self.users, self._properties, self._listeners)
        node.configuration_file.touch(mode=0o600)  # it may contain passwords
        node.configuration_file.write_text(render_properties(properties))
