"""Why a group or partition could not be read: Kafka's error names, also for what kafka-python raises."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import kafka.errors as kafka_errors

_RENAMED = {
    -1: "UNKNOWN_SERVER_ERROR",
    6: "NOT_LEADER_OR_FOLLOWER",
    10: "MESSAGE_TOO_LARGE",
    17: "INVALID_TOPIC_EXCEPTION",
    39: "INVALID_REPLICA_ASSIGNMENT",
    128: "INVALID_REGULAR_EXPRESSION",
    129: "REBOOTSTRAP_REQUIRED",
    130: "STREAMS_INVALID_TOPOLOGY",
    131: "STREAMS_INVALID_TOPOLOGY_EPOCH",
    132: "STREAMS_TOPOLOGY_FENCED",
    133: "SHARE_SESSION_LIMIT_REACHED",
}
"""Error codes whose name in kafka-python differs from that in Kafka 4.3's `Errors` enum."""

_MOVED_OR_BUSY = {
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "FENCED_LEADER_EPOCH",
    "KAFKA_STORAGE_ERROR",
    "LEADER_NOT_AVAILABLE",
    "NETWORK_EXCEPTION",
    "NOT_COORDINATOR",
    "NOT_LEADER_OR_FOLLOWER",
    "OFFSET_NOT_AVAILABLE",
    "REPLICA_NOT_AVAILABLE",
    "REQUEST_TIMED_OUT",
    "UNKNOWN_LEADER_EPOCH",
    "UNKNOWN_TOPIC_OR_PARTITION",
    "UNSTABLE_OFFSET_COMMIT",
}


@dataclass(frozen=True)
class Failure:
    """Why an item could not be read: Kafka's error name. It is final if a broker has said that the item does not exist.

    `partial` is the answer, if the broker sent one together with the error.
    """

    error: str
    is_final: bool = False
    partial: Any = field(default=None, compare=False, repr=False)

    @property
    def is_retriable(self) -> bool:
        """Whether the item may be answered if it is asked for again, or at another broker."""
        return self.error in _MOVED_OR_BUSY and not self.is_final


def error_name(code: int) -> str | None:
    """Kafka's name for an error code; None for 0."""
    if code == 0:
        return None
    if code in _RENAMED:
        return _RENAMED[code]
    error = kafka_errors.for_code(code)
    return error.message if error.message != "UNKNOWN" else f"UNKNOWN_ERROR_{code}"


def failure_of(error: BaseException) -> Failure:
    """The failure that stands for an exception of kafka-python."""
    if isinstance(error, UnreachableError):
        return error.failure
    if isinstance(error, kafka_errors.KafkaTimeoutError | kafka_errors.RequestTimedOutError):
        return Failure("REQUEST_TIMED_OUT")
    if isinstance(error, kafka_errors.IncompatibleBrokerVersion):
        return Failure("UNSUPPORTED_VERSION")
    if isinstance(error, kafka_errors.BrokerResponseError) and error.errno:
        return Failure(error_name(error.errno) or "UNKNOWN_SERVER_ERROR")
    return Failure("NETWORK_EXCEPTION")


class UnreachableError(Exception):
    """Carries a Failure through a Future of kafka-python."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.error)
        self.failure = failure
