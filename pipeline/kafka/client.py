"""Asks brokers for groups and partitions, each at the broker that serves it, all brokers at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from kafka.protocol.metadata import ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest

from pipeline.kafka.connections import CLIENT_ID, Connections, Reply
from pipeline.kafka.failures import Failure, error_name

Item = TypeVar("Item")
Asked = tuple[Sequence[Any], Callable[[Sequence[Reply]], Mapping[Item, Any]]]
"""The requests for some items of one broker, and a function that gets an answer or a Failure for each item from the
replies."""
Ask = Callable[[int | None, Sequence[Item]], Asked[Item]]


class KafkaClient(Connections):
    """Asks for items, and asks again if an item has moved or its broker is busy. A failure affects only its item."""

    def api_versions(self, brokers: Iterable[int]) -> dict[int, dict[int, int] | Failure]:
        """What each broker supports: API key → highest version, or the Failure if it did not answer."""
        request = ApiVersionsRequest(client_software_name=CLIENT_ID, client_software_version="0")
        return {
            broker: a if isinstance(a, Failure) else {api.api_key: api.max_version for api in a.api_keys}
            for broker, a in self.ask_each(brokers, lambda: request).items()
        }

    def ask_any(self, request: Any) -> Any:
        """Asks any broker, and if that fails, another one. Returns the answer or the last Failure."""

        def ask(_: int | None, items: Sequence[str]) -> Asked[str]:
            return [request], lambda replies: dict.fromkeys(items, replies[0].answer)

        return self.ask_all({"any": None}, ask, dict.fromkeys)["any"]

    def ask_each(self, brokers: Iterable[int], request: Callable[[], Any]) -> dict[int, Any]:
        """Asks all brokers the same at once, and again those that fail. Returns each one's answer or last Failure."""

        def ask(_: int | None, items: Sequence[int]) -> Asked[int]:
            return [request()], lambda replies: dict.fromkeys(items, _without_error(replies[0].answer))

        return self.ask_all({b: b for b in brokers}, ask, lambda again: {b: b for b in again})

    def ask_all(
        self,
        items: Mapping[Item, int | Failure | None],
        ask: Ask[Item],
        find_brokers: Callable[[Sequence[Item]], Mapping[Item, int | Failure | None]],
        retries: int | None = None,
    ) -> dict[Item, Any]:
        """Asks for every item at the broker that serves it; if the item has moved or the broker is busy, asks again.

        `items` maps an item to its broker, `ask` returns the requests for the items of one broker, `find_brokers`
        returns the current broker of each item or a Failure. Each attempt asks all brokers at once. The number of
        attempts is limited by `retries` (by default, the option) and by the task's time. A broker that let a request
        time out is not asked again. Returns an answer or the last Failure for each item.
        """
        answers: dict[Item, Any] = {}
        brokers: Mapping[Item, int | Failure | None] = items
        for attempt in range((self.options.retries if retries is None else retries) + 1):
            if attempt:
                self.back_off(attempt)
                found = find_brokers(list(brokers))
                brokers = {i: b for i, b in found.items() if not self._gave_up(answers[i], brokers[i], b)}
            answers |= self._ask_once(brokers, ask)
            brokers = {i: b for i, b in brokers.items() if _is_retriable(answers[i])}
            if not brokers or self.timeout_ms() <= 0:
                break
        return answers

    @staticmethod
    def _gave_up(answer: Failure, before: object, now: object) -> bool:
        return answer.error == "REQUEST_TIMED_OUT" and before == now and before is not None

    def _ask_once(self, brokers: Mapping[Item, int | Failure | None], ask: Ask[Item]) -> dict[Item, Any]:
        answers: dict[Item, Any] = {i: broker for i, broker in brokers.items() if isinstance(broker, Failure)}
        by_broker: dict[int | None, list[Item]] = {}
        for item, broker in brokers.items():
            if not isinstance(broker, Failure):
                by_broker.setdefault(broker, []).append(item)
        if None in by_broker:
            self.connect_any()
        self.connect(by_broker)  # what to ask depends on the version that a broker supports
        asked = {b: ask(b, its) for b, its in by_broker.items()}
        replies = iter(self.replies([(b, request) for b, (requests, _) in asked.items() for request in requests]))
        for b, (requests, parse) in asked.items():
            found = parse(list(islice(replies, len(requests))))
            # If a broker leaves an item out of its answer, only that item fails.
            answers |= {i: found.get(i, Failure("UNKNOWN_SERVER_ERROR")) for i in by_broker[b]}
        return answers

    def metadata(self, topics: Sequence[str] | None) -> Any:
        """The MetadataResponse for some topics, or for all (None); or a Failure."""
        names = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=t) for t in topics]
        return self.ask_any(MetadataRequest(topics=names, allow_auto_topic_creation=False))

    def coordinators(self, groups: Sequence[str]) -> dict[str, int | Failure]:
        """The coordinator of each group (FindCoordinator, KIP-699: one request for all), or a Failure."""
        if (self.version(FindCoordinatorRequest) or 0) < 4:
            found = [self._coordinator(group) for group in groups]
            return dict(zip(groups, found, strict=True))
        answer = self.ask_any(FindCoordinatorRequest(key_type=0, coordinator_keys=list(groups), min_version=4))
        if isinstance(answer, Failure):
            return dict.fromkeys(groups, answer)
        return {c.key: _broker_or_failure(c.error_code, c.node_id) for c in answer.coordinators}

    def _coordinator(self, group: str) -> int | Failure:
        answer = self.ask_any(FindCoordinatorRequest(key=group, key_type=0, max_version=3))
        return answer if isinstance(answer, Failure) else _broker_or_failure(answer.error_code, answer.node_id)


def _without_error(answer: Any) -> Any:
    if isinstance(answer, Failure) or not answer.error_code:
        return answer
    return Failure(error_name(answer.error_code) or "", partial=answer)


def _broker_or_failure(error_code: int, broker: int) -> int | Failure:
    error = error_name(error_code)
    return Failure(error) if error else broker


def _is_retriable(answer: object) -> bool:
    return isinstance(answer, Failure) and answer.is_retriable


def in_chunks(items: Iterable[Item], size: int) -> Iterable[list[Item]]:
    """Lists of at most `size` items."""
    chunk: list[Item] = []
    for item in items:
        chunk.append(item)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
