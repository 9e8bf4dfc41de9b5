"""A consumer group of the new protocol (KIP-848), which kafka-python does not support: Kafka's console consumer."""

from pathlib import Path

from kafka import KafkaAdminClient

from demo.embedded_kafka.broker import EmbeddedKafka
from demo.errors import WorkloadError
from demo.workload.actors import Actor
from demo.workload.agents import jmx_exporter
from demo.workload.plan import TopicPlan

CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
LOOK_EVERY_S = 0.5


class ConsoleReader(Actor):
    """A healthy reader with `group.protocol=consumer`. Its records are discarded, its errors go into a file.

    jmx_exporter serves its metrics at `endpoint`.
    """

    def __init__(self, kafka: EmbeddedKafka, group_id: str, topic: TopicPlan) -> None:
        super().__init__(f"{group_id}-1", kafka.bootstrap_servers)
        self._kafka = kafka
        self._group_id = group_id
        self._topic = topic
        self._agent = jmx_exporter(kafka.directory)
        self.endpoint = self._agent.endpoint

    def act(self) -> None:
        """Settled after its first commit. If the program ends without being asked to, this is an error."""
        complaints = self._kafka.directory / f"{self.name}.log"
        with complaints.open("w") as file:
            process = self._kafka.spawn_tool(*self._command(), agent=self._agent.option, stderr=file)
        try:
            with KafkaAdminClient(bootstrap_servers=self.bootstrap_servers, client_id=f"{self.name}-watch") as admin:
                while not self.wait(LOOK_EVERY_S):
                    if process.poll() is not None:
                        raise WorkloadError(f"the console consumer ended: {_last_line(complaints)}")
                    if not self.settled.is_set() and admin.list_group_offsets([self._group_id])[self._group_id]:
                        self.settled.set()
        finally:
            self._kafka.end_tool(process)

    def _command(self) -> list[str]:
        properties = {
            "group.protocol": "consumer",
            "client.id": self.name,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": "500",
        }
        # --command-property is new in 4.2; --consumer-property still works but complains on standard output.
        return [
            CONSOLE_CONSUMER,
            *("--bootstrap-server", self.bootstrap_servers),
            *("--topic", self._topic.name, "--group", self._group_id),
            *(argument for item in properties.items() for argument in ("--command-property", "=".join(item))),
        ]


def _last_line(file: Path) -> str:
    lines = file.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"
