"""Operations on a running Kafka: getting its addresses, freezing or killing brokers, running Kafka's own tools."""

import subprocess
import time
from contextlib import suppress
from pathlib import Path

from demo.embedded_kafka.broker_process import BrokerProcess
from demo.embedded_kafka.children import Children, Output
from demo.embedded_kafka.java_tools import JavaTools
from demo.embedded_kafka.readiness import wait_for_brokers

START_TIMEOUT_S = 90.0


class Cluster:
    """Brokers 1 … n and their processes; `EmbeddedKafka` starts and stops them."""

    _brokers: dict[int, BrokerProcess]
    _children: Children
    _tools: JavaTools

    @property
    def bootstrap_servers(self) -> str:
        """host:port of every broker, separated by commas. No authentication, and all rights."""
        return ",".join(broker.node.address for broker in self._brokers.values())

    @property
    def sasl_bootstrap_servers(self) -> str:
        """host:port of every broker's SASL_PLAINTEXT listener, separated by commas; for `users`."""
        return ",".join(broker.node.sasl_address for broker in self._brokers.values())

    def listener(self, name: str) -> str:
        """host:port of every broker's further listener of this name, separated by commas."""
        return ",".join(broker.node.listener_address(name) for broker in self._brokers.values())

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """The ids of all brokers, running or not."""
        return tuple(self._brokers)

    def address(self, broker_id: int) -> str:
        """host:port of one broker's listener without authentication."""
        return self._brokers[broker_id].node.address

    def log_dir(self, broker_id: int) -> Path:
        """The folder with the broker's partitions."""
        return self._brokers[broker_id].node.log_dir

    def start(self, broker_id: int) -> None:
        """Starts a broker that was killed or stopped, with its old ports and data, and waits until it is ready.

        That takes up to 20 s, because the controller accepts it only after its old session has ended.
        """
        deadline = time.monotonic() + START_TIMEOUT_S
        broker = self._brokers[broker_id]
        broker.launch()
        broker.wait_until_listening(deadline)
        wait_for_brokers(broker.node.address, [broker_id], deadline)

    def kill(self, broker_id: int) -> None:
        """Sends SIGKILL. Clients notice it at once, the controller after broker.session.timeout.ms (18 s)."""
        self._brokers[broker_id].kill()

    def stop(self, broker_id: int) -> None:
        """Shuts the broker down cleanly: leaders and coordinators move away first."""
        self._brokers[broker_id].stop()

    def freeze(self, broker_id: int) -> None:
        """Sends SIGSTOP: connections stay open, and nothing is answered; the controller gives it up after 18 s."""
        self._brokers[broker_id].freeze()

    def thaw(self, broker_id: int) -> None:
        """Sends SIGCONT: it continues where it was frozen."""
        self._brokers[broker_id].thaw()

    def check(self) -> None:
        """Raises BrokerError if a broker died that was not killed or stopped here."""
        for broker in self._brokers.values():
            broker.raise_if_dead()

    def run_tool(self, main_class: str, *arguments: str, timeout: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Runs one of Kafka's command-line tools to its end, and returns its output; the exit status is not checked.

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
        agent: str | None = None,
        stdout: Output = subprocess.DEVNULL,
        stderr: Output = subprocess.DEVNULL,
    ) -> subprocess.Popen[str]:
        """Starts one of Kafka's command-line tools in the background; it ends with this Kafka at the latest.

        `agent` is as in `JavaTools.command`.
        """
        return self._children.start(self._tools.command(main_class, *arguments, agent=agent), stdout, stderr)

    def end_tool(self, process: subprocess.Popen[str], grace_s: float = 3.0) -> None:
        """Ends a spawned tool with SIGTERM, and SIGKILL after `grace_s` seconds; does nothing if it has ended."""
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(grace_s)
        self._children.reap(process)
