"""The errors of the embedded Kafka and its workload. A message says what is wrong and, if it helps, what to do."""

from pipeline.common.errors import LaglakeError


class EmbeddedKafkaError(LaglakeError):
    """The base of all errors that this package defines."""


class JarsError(EmbeddedKafkaError):
    """Kafka's jars cannot be fetched or run here: no Java, no Ivy, no network."""


class BrokerError(EmbeddedKafkaError):
    """A broker died or did not become ready; the message ends with the end of its log."""


class InUseError(EmbeddedKafkaError):
    """Another running process has its Kafka in the same folder."""


class WorkloadError(EmbeddedKafkaError):
    """An actor of the workload failed, or did not reach the state that it should show."""
