"""The errors of the local Kafka, each with one line that says what to do."""

from pipeline.errors import LaglakeError


class LocalKafkaError(LaglakeError):
    """Base of everything this package raises by itself."""


class JarsError(LocalKafkaError):
    """Kafka's jars cannot be fetched or run here: no Java, no Ivy, no network."""


class BrokerError(LocalKafkaError):
    """A broker died or did not become ready; the message ends with its own last words."""


class InUseError(LocalKafkaError):
    """Another living process runs its Kafka in the same folder."""


class WorkloadError(LocalKafkaError):
    """An actor of the workload failed, or did not reach the state it is there to show."""
