"""The errors of the local Kafka, each with one line that says what to do."""

from pipeline.common.errors import LaglakeError


class LocalKafkaError(LaglakeError):
    """The base of all errors that this package defines."""


class JarsError(LocalKafkaError):
    """Kafka's jars cannot be fetched or run here: no Java, no Ivy, no network."""


class BrokerError(LocalKafkaError):
    """A broker died or did not become ready; the message ends with the end of its log."""


class InUseError(LocalKafkaError):
    """Another running process has its Kafka in the same folder."""


class WorkloadError(LocalKafkaError):
    """An actor of the workload failed, or did not reach the state that it should show."""
