"""Operations on a running Kafka: get its addresses, freeze or kill its brokers, run Kafka's own tools."""

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
    """Brokers 1 … n and the processes that go with them; `EmbeddedKafka` starts and ends them."""

    _brokers: dict[int, BrokerProcess]
    _children: Children
    _tools: JavaTools

    @property
    def bootstrap_servers(self) -> str:
        """host:port of every broker, comma separated; no authentication, may do everything."""
        return ",".join(broker.node.address for broker in self._brokers.values())

    @property
    def sasl_bootstrap_servers(self) -> str:
        """host:port of every broker's SASL_PLAINTEXT listener, comma separated; for `users`."""
        return ",".join(broker.node.sasl_address for broker in self._brokers.values())

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
        agent: str | None = None,
        stdout: Output = subprocess.DEVNULL,
        stderr: Output = subprocess.DEVNULL,
    ) -> subprocess.Popen[str]:
        """Start one of Kafka's command line tools in the background; it ends with this Kafka at the latest.

        `agent` is that of `JavaTools.command`.
        """
        return self._children.start(self._tools.command(main_class, *arguments, agent=agent), stdout, stderr)

    def end_tool(self, process: subprocess.Popen[str], grace_s: float = 3.0) -> None:
        """End a spawned tool: SIGTERM, and SIGKILL after `grace_s` seconds; one that has ended is fine."""
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(grace_s)
        self._children.reap(process)
