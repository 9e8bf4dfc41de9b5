"""A real Kafka in child processes, for as long as a `with` block: no Docker, no installation.

with EmbeddedKafka(Path("build/kafka"), brokers=3) as kafka:
    print(kafka.bootstrap_servers)
    kafka.freeze(2)
"""

import base64
import shutil
import subprocess
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from pipeline.local.broker_process import BrokerProcess
from pipeline.local.children import Children, Output
from pipeline.local.class_archive import ensure_class_archive
from pipeline.local.jars import kafka_jars
from pipeline.local.java_tools import JavaTools
from pipeline.local.nodes import Node, plan_nodes, render_properties, server_properties
from pipeline.local.readiness import wait_for_brokers, wait_for_coordinators

START_TIMEOUT_S = 90.0


class EmbeddedKafka:
    """Brokers 1 … n in KRaft mode; node 1 is the controller as well, so leave that one alive.

    Everything is under `directory`: node-<id>/data (the logs), node-<id>/server.log, tools.log. It starts empty:
    the nodes' folders of an earlier start are removed. `properties` are added to every server.properties.
    `users` (name → password) may use `sasl_bootstrap_servers` (SASL_PLAINTEXT, PLAIN); with users ACLs are obeyed,
    and what no ACL names is allowed to everyone. `heap_mb` is the limit of each broker.

    Raises, on entering:
        InUseError: another living process runs its Kafka in `directory`.
        JarsError: no Java, or the jars cannot be fetched.
        BrokerError: a broker died or was not ready in 90 s.
    """

    def __init__(
        self,
        directory: Path,
        brokers: int = 1,
        properties: Mapping[str, str] | None = None,
        *,
        users: Mapping[str, str] | None = None,
        heap_mb: int = 512,
    ) -> None:
        self.directory = directory.absolute()
        self._count = brokers
        self._properties = dict(properties or {})
        self.users = dict(users or {})
        self._heap_mb = heap_mb

    def __enter__(self) -> Self:
        jars = kafka_jars()
        ensure_class_archive(jars)
        self.directory.mkdir(parents=True, exist_ok=True)
        self._children = Children(self.directory)
        try:
            self._tools = JavaTools(jars, self.directory, self._children.marker)
            self._tools.write_log_configuration()
            self._nodes = plan_nodes(self.directory, self._count)
            self._brokers = {
                node.node_id: BrokerProcess(node, self._tools, self._children, self._heap_mb) for node in self._nodes
            }
            self._start_all(time.monotonic() + START_TIMEOUT_S)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill brokers and tools, without care for their data; a second call does nothing."""
        self._children.close()

    @property
    def bootstrap_servers(self) -> str:
        """host:port of every broker, comma separated; no authentication, may do everything."""
        return ",".join(node.address for node in self._nodes)

    @property
    def sasl_bootstrap_servers(self) -> str:
        """host:port of every broker's SASL_PLAINTEXT listener, comma separated; for `users`."""
        return ",".join(node.sasl_address for node in self._nodes)

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """The ids of all brokers, living or not."""
        return tuple(self._brokers)

    def address(self, broker_id: int) -> str:
        """host:port of one broker's listener without authentication."""
        return self._brokers[broker_id].node.address

    def log_dir(self, broker_id: int) -> Path:
        """The folder with the broker's partitions."""
        return self._brokers[broker_id].node.log_dir

    def start(self, broker_id: int) -> None:
        """Start a broker that was killed or stopped, on its old ports and data, and wait until it is ready.

        That takes up to 8 s: the controller takes it back only when the session of its former life has ended.
        """
        deadline = time.monotonic() + START_TIMEOUT_S
        broker = self._brokers[broker_id]
        broker.launch()
        broker.wait_until_listening(deadline)
        wait_for_brokers(broker.node.address, [broker_id], deadline)

    def kill(self, broker_id: int) -> None:
        """SIGKILL: clients see it at once, the controller after broker.session.timeout.ms (6 s)."""
        self._brokers[broker_id].kill()

    def stop(self, broker_id: int) -> None:
        """A clean shutdown: leaders and coordinators move away first."""
        self._brokers[broker_id].stop()

    def freeze(self, broker_id: int) -> None:
        """SIGSTOP: connections stay open, nothing is answered; the controller gives it up after 6 s."""
        self._brokers[broker_id].freeze()

    def thaw(self, broker_id: int) -> None:
        """SIGCONT: it goes on where it was frozen."""
        self._brokers[broker_id].thaw()

    def check(self) -> None:
        """Raise BrokerError if a broker died that nobody killed or stopped."""
        for broker in self._brokers.values():
            broker.raise_if_dead()

    def run_tool(self, main_class: str, *arguments: str, timeout: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Run one of Kafka's command line tools to its end, with its output; the exit status is not judged.

        Raises:
            subprocess.TimeoutExpired: it took longer than `timeout` seconds, and was killed.
        """
        process = self.spawn_tool(main_class, *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            output, errors = process.communicate(timeout=timeout)
        finally:
            self._children.reap(process)
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)

    def spawn_tool(
        self,
        main_class: str,
        *arguments: str,
        stdout: Output = subprocess.DEVNULL,
        stderr: Output = subprocess.DEVNULL,
    ) -> subprocess.Popen[str]:
        """Start one of Kafka's command line tools in the background; it ends with this Kafka at the latest."""
        return self._children.start(self._tools.command(main_class, *arguments), stdout, stderr)

    def end_tool(self, process: subprocess.Popen[str], grace_s: float = 3.0) -> None:
        """End a spawned tool: SIGTERM, and SIGKILL after `grace_s` seconds; one that has ended is fine."""
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(grace_s)
        self._children.reap(process)

    def _start_all(self, deadline: float) -> None:
        for node in self._nodes:
            shutil.rmtree(node.directory, ignore_errors=True)
            node.directory.mkdir()
            self._configure(node)
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        formatting = [(broker, broker.start_formatting(cluster_id)) for broker in self._brokers.values()]
        for broker, process in formatting:
            broker.finish_formatting(process, deadline - time.monotonic())
        for broker in self._brokers.values():
            broker.launch()
        for broker in self._brokers.values():
            broker.wait_until_listening(deadline)
        # __consumer_offsets is created by the first question for a coordinator, over the brokers known by then.
        wait_for_brokers(self.bootstrap_servers, self.broker_ids, deadline)
        wait_for_coordinators(self.bootstrap_servers, deadline)

    def _configure(self, node: Node) -> None:
        properties = server_properties(node, self._nodes, self.users, self._properties)
        node.configuration_file.touch(mode=0o600)  # it may hold passwords
        node.configuration_file.write_text(render_properties(properties))
