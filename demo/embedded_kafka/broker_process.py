"""The process of one broker: formats its storage, starts and watches it, and freezes or kills it for tests."""

import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress

from demo.embedded_kafka.children import Children
from demo.embedded_kafka.java_tools import JavaTools, tail
from demo.embedded_kafka.nodes import Node
from demo.embedded_kafka.readiness import is_listening, wait_until
from demo.errors import BrokerError

STOP_TIMEOUT_S = 30.0


class BrokerProcess:
    """The process of one node, which may be started and stopped many times with the same ports and data."""

    def __init__(self, node: Node, tools: JavaTools, children: Children, heap_mb: int) -> None:
        self.node = node
        self._tools = tools
        self._children = children
        self._heap_mb = heap_mb
        self._process: subprocess.Popen[str] | None = None

    def start_formatting(self, cluster_id: str, scram_users: Mapping[str, str]) -> subprocess.Popen[str]:
        """Starts Kafka's StorageTool; without it, a KRaft node refuses to start with an empty folder."""
        arguments = ["format", "--cluster-id", cluster_id, "--config", self._configuration]
        for user, password in scram_users.items():
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                arguments += ["--add-scram", f"{mechanism}=[name={user},password={password}]"]
        command = self._tools.command("kafka.tools.StorageTool", *arguments, log=self.node.log_file)
        with self.node.console_file.open("a") as console:
            return self._children.start(command, stdout=console, stderr=subprocess.STDOUT)

    def finish_formatting(self, formatting: subprocess.Popen[str], timeout_s: float) -> None:
        """Waits for the StorageTool.

        Raises:
            BrokerError: it failed, for example because a property is not valid.
        """
        with suppress(subprocess.TimeoutExpired):
            formatting.wait(timeout_s)
        status = formatting.poll()
        self._children.reap(formatting)
        if status != 0:
            raise BrokerError(f"node {self.node.node_id} could not be formatted:\n{self._last_words()}")

    def launch(self) -> None:
        """Starts the broker, without waiting until it is ready."""
        if self._process is not None:
            raise BrokerError(f"broker {self.node.node_id} is started already")
        command = self._tools.command(
            "kafka.Kafka", self._configuration, log=self.node.log_file, level="INFO", heap_mb=self._heap_mb
        )
        with self.node.console_file.open("a") as console:
            self._process = self._children.start(command, stdout=console, stderr=subprocess.STDOUT)

    def wait_until_listening(self, deadline: float) -> None:
        """Waits until it accepts connections.

        Raises:
            BrokerError: it died, or does not accept connections by `deadline`; the message ends with its log.
        """

        def listening() -> bool:
            self.raise_if_dead()
            return is_listening(self.node.port)

        try:
            wait_until(f"broker {self.node.node_id} to listen on port {self.node.port}", listening, deadline)
        except BrokerError as error:
            raise BrokerError(f"{error}:\n{self._last_words()}") from None

    def raise_if_dead(self) -> None:
        """Raises BrokerError if the process has ended without being stopped."""
        if self._process is not None and self._process.poll() is not None:
            raise BrokerError(
                f"broker {self.node.node_id} died with status {self._process.returncode}:\n{self._last_words()}"
            )

    def kill(self) -> None:
        """Sends SIGKILL; does nothing if it is not running."""
        if self._process is not None:
            self._children.reap(self._process)
            self._process = None

    def stop(self) -> None:
        """Sends SIGTERM, for a clean shutdown; SIGKILL if that takes more than 30 s."""
        if self._process is not None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_TIMEOUT_S)
            self.kill()

    def freeze(self) -> None:
        """SIGSTOP."""
        self._running().send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self._running().send_signal(signal.SIGCONT)

    def _running(self) -> subprocess.Popen[str]:
        self.raise_if_dead()
        if self._process is None:
            raise BrokerError(f"broker {self.node.node_id} is not running")
        return self._process

    @property
    def _configuration(self) -> str:
        return str(self.node.configuration_file)

    def _last_words(self) -> str:
        return tail(self.node.log_file, self.node.console_file)
