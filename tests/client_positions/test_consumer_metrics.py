"""Consumers' metrics as agents serve them, in recordings of real consumers of four generations."""

import json
from pathlib import Path

import pytest

from pipeline.client_positions.consumer_metrics import NAMES, Metric, of_jolokia, of_prometheus
from pipeline.client_positions.metrics_source import ClientMetricsSource
from pipeline.client_positions.position import Position, contradictions, of_metrics
from tests.helpers.client_metrics import rows_of
from tests.helpers.recordings import rounds, unpacked

CLIENTS = {
    "modern-b": "aggregator",
    "modern-b-slow": "worker-1",
    "legacy-a2-blocked": "",
    "legacy-a2-kafka-0.8.1.1": "",
}
COUNTERS = ("requests_total", "bytes_total")


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recordings")


@pytest.mark.parametrize("recording", CLIENTS)
def test_jolokia_and_jmx_exporter_report_the_same_metrics_of_one_consumer(folder: Path, recording: str) -> None:
    found = list(rounds(unpacked(recording, folder) / CLIENTS[recording]))
    counters = []
    for number, (_, jolokia, prometheus) in enumerate(found):
        reported = [{m[:5]: m.value for m in metrics} for metrics in (jolokia, prometheus)]
        assert len(reported[0]) == len(jolokia)
        # Between the two answers, a partition may appear with its first records; none disappears in these recordings.
        assert set(reported[0]) <= set(reported[1])
        assert set(reported[0]) == set(reported[1]) or number < 5
        counters += [(key, reported[0][key], reported[1][key]) for key in reported[0] if key[0] in COUNTERS]
    assert all(before <= after for _, before, after in counters)
    # jmx_exporter is read after Jolokia and before the next round, so its counters are between theirs.
    following: dict[object, float] = {}
    for key, before, after in reversed(counters):
        assert after <= following.get(key, float("inf"))
        following[key] = before
    assert {key[0] for key in following} == set(COUNTERS)


def named(metrics: list[Metric]) -> dict[str, set[tuple[str, str | None, int | None, str | None, str | None]]]:
    found: dict[str, set[tuple[str, str | None, int | None, str | None, str | None]]] = {}
    for m in metrics:
        found.setdefault(m.name, set()).add((m.client_id, m.topic, m.partition, m.thread, m.broker))
    return found


def test_the_java_consumers_metrics_are_parsed(folder: Path) -> None:
    _, metrics, _ = list(rounds(unpacked("modern-b", folder) / "aggregator"))[20]
    partitions = {("orders", n) for n in range(3)} | {("clicks", 0), ("clicks", 1), ("mail.outbound", 0)}
    each = {("shop-agg-1", topic, n, None, None) for topic, n in partitions}
    client = {("shop-agg-1", None, None, None, None)}
    assert named(metrics) == {
        "records_lag": each,
        "records_lead": each,
        **dict.fromkeys(("max_lag", *COUNTERS), client),
    }


@pytest.mark.parametrize(
    ("recording", "client", "broker", "threads", "partitions"),
    [
        (
            "legacy-a2-blocked",
            "backend",
            "127.0.0.1:9392",
            {"web-clicks": 3, "order.events": 1, "mail_queue": 2},
            {"web-clicks": 3, "order.events": 2, "mail_queue": 3},
        ),
        (
            "legacy-a2-kafka-0.8.1.1",
            "legacy-reports",
            "127.0.0.1:9392",
            {"hist-clicks": 2, "hist.orders": 1},
            {"hist-clicks": 2, "hist.orders": 2},
        ),
    ],
)
def test_the_old_consumers_metrics_are_parsed(
    folder: Path, recording: str, client: str, broker: str, threads: dict[str, int], partitions: dict[str, int]
) -> None:
    _, metrics, _ = list(rounds(unpacked(recording, folder)))[20]
    found = named(metrics)
    assert {(c, t, p) for c, t, p, _, _ in found["fetcher_lag"]} == {
        (client, topic, n) for topic, count in partitions.items() for n in range(count)
    }
    assert found["queue_chunks"] == {
        (client, topic, None, str(n), None) for topic, count in threads.items() for n in range(count)
    }
    assert found["max_lag"] == {(client, None, None, None, None)}
    assert found["requests_total"] == found["bytes_total"] == {(client, None, None, None, broker)}


def test_only_the_queue_of_the_slow_topic_is_full(folder: Path) -> None:
    _, metrics, _ = list(rounds(unpacked("legacy-a2-blocked", folder)))[-1]
    queues = {(m.topic, m.thread): m.value for m in metrics if m.name == "queue_chunks"}
    assert {topic for (topic, _), chunks in queues.items() if chunks == 2} == {"order.events"}
    assert {topic for (topic, _), chunks in queues.items() if chunks == 0} == {"web-clicks", "mail_queue"}


LAG = "kafka_server_fetcherlagmetrics_consumerlag"
SCRAPES = {
    "the default rules of an older exporter, with a comma at the end": (
        'kafka_consumer_consumer_fetch_manager_metrics_records_lag{client_id="c-1",topic="t",partition="1",} 360.0',
        [Metric("records_lag", "c-1", "t", 1, None, None, 360.0)],
    ),
    "the rules of kafka-connect.yml": (
        'kafka_consumer_fetch_manager_records_lag{clientId="c-1",partition="1",topic="t"} 320.0',
        [Metric("records_lag", "c-1", "t", 1, None, None, 320.0)],
    ),
    "a client in the name of the metric, which another metric spells": (
        (
            f'{LAG}{{clientId="m-1",partition="0",topic="t"}} 7.0\n'
            'kafka_consumer_zookeeperconsumerconnector_fetchqueuesize_clientid_m_1{threadId="0",topic="t"} 2.0'
        ),
        [Metric("fetcher_lag", "m-1", "t", 0, None, None, 7.0), Metric("queue_chunks", "m-1", "t", None, "0", None, 2)],
    ),
    "a client in the name of a label": (
        'kafka_server_fetcherstats_requests_total{brokerPort="9392",clientId_mgroup_brokerHost="b-1"} 195.0',
        [Metric("requests_total", "mgroup", None, None, None, "b-1:9392", 195.0)],
    ),
    "OpenMetrics": (
        (
            "# TYPE kafka_consumer_consumer_fetch_manager_metrics_fetch counter\n"
            'kafka_consumer_consumer_fetch_manager_metrics_fetch_total{client_id="c"} 17.0\n# EOF\n'
        ),
        [Metric("requests_total", "c", None, None, None, None, 17.0)],
    ),
    "a broker's replica fetcher": (f'{LAG}{{clientId="ReplicaFetcherThread-0-1",partition="0",topic="t"}} 5.0', []),
    "no value": ('kafka_consumer_consumer_fetch_manager_metrics_records_lag_max{client_id="c"} NaN', []),
    "an average and a largest one of a partition": (
        (
            'kafka_consumer_consumer_fetch_manager_metrics_records_lag_avg{client_id="c",topic="t",partition="1"} 1.0\n'
            'kafka_consumer_consumer_fetch_manager_metrics_records_lag_max{client_id="c",topic="t",partition="1"} 9.0'
        ),
        [],
    ),
    "a broker's replica fetcher, by a rule that takes its name for a label's": (
        'kafka_server_fetcherstats_requests_total{brokerPort="1",clientid_replicafetcherthread_0_1_brokerhost="b"} 5.0',
        [],
    ),
    "a partition that is none": (f'{LAG}{{clientId="c",partition="x",topic="t"}} 5.0', []),
    "one client's topic with a dot, and another's with an underscore": (
        (
            f'{LAG}{{clientId="a",partition="0",topic="x.y"}} 1.0\n'
            f'{LAG}{{clientId="a",partition="0",topic="x_y"}} 1.0\n'
            f'{LAG}{{clientId="b",partition="0",topic="x_y"}} 2.0'
        ),
        [Metric("fetcher_lag", "a", "x.y", 0, None, None, 1.0), Metric("fetcher_lag", "b", "x_y", 0, None, None, 2.0)],
    ),
    "nothing": ("", []),
}


def flat_answer(*values: tuple[str, str, int]) -> str:
    beans = {f'"kafka":type="{kind}",name="{name}"': {"Value": n, "Count": n} for kind, name, n in values}
    return json.dumps([{"status": 200, "request": {"mbean": "*"}, "value": {b: v}} for b, v in beans.items()])


def lag_of(client: str, topic: str) -> tuple[str, str, int]:
    thread = f"{client}-ConsumerFetcherThread-g_h-1-2-0-0-host_b-port_1"
    return "FetcherLagMetrics", f"{thread}-{topic}-0-ConsumerLag", 0


def test_a_flat_name_that_contains_another_one_is_assigned_correctly() -> None:
    queue = "ZookeeperConsumerConnector"
    answer = flat_answer(
        lag_of("c", "clicks"),
        lag_of("c", "web-clicks"),
        (queue, "c-g-clicks-g_h-1-2-0-FetchQueueSize", 0),
        (queue, "c-g-web-clicks-g_h-1-2-0-FetchQueueSize", 2),
        lag_of("c-1", "other"),
        ("ConsumerFetcherManager", "c-1-MaxLag", 9),
        ("ConsumerFetcherManager", "c-MaxLag", 4),
    )
    found = of_jolokia(answer)
    assert {m.topic: m.value for m in found if m.name == "queue_chunks"} == {"clicks": 0, "web-clicks": 2}
    assert {m.client_id: m.value for m in found if m.name == "max_lag"} == {"c": 4, "c-1": 9}


def test_each_of_several_fetchers_has_its_counters() -> None:
    names = [f"c-ConsumerFetcherThread-g_h-1-2-{n}-0-host_b-port_1-RequestsPerSec" for n in (0, 1)]
    positions = of_metrics(of_jolokia(flat_answer(*(("FetcherStats", name, 100 + n) for n, name in enumerate(names)))))
    assert {(p.fetcher, p.requests_total) for p in positions} == {("b:1", 100), ("b:1/1", 101)}


def test_a_long_hostile_name_is_parsed_quickly() -> None:
    name = "-ConsumerFetcherThread-a-1-1-host_h-port_1" * 1_000 + "_"
    assert of_prometheus(f'{LAG}{{clientId="c",partition="0",topic="{name}"}} 1.0\n')[0].topic == name


def test_a_client_id_in_quotes_is_unescaped() -> None:
    bean = 'kafka.consumer:type=consumer-fetch-manager-metrics,client-id="a,b\\*",topic=t,partition=3'
    answer = {"status": 200, "request": {"mbean": "*"}, "value": {bean: {"records-lag": 1}}}
    assert [m.client_id for m in of_jolokia(json.dumps(answer))] == ["a,b*"]


@pytest.mark.parametrize("case", SCRAPES)
def test_scrapes_with_names_of_other_exporter_rules_are_parsed(case: str) -> None:
    text, metrics = SCRAPES[case]
    assert of_prometheus(text + "\n" * (not text.endswith("\n"))) == metrics


BEAN = "kafka.consumer:type=consumer-fetch-manager-metrics,client-id=c,topic=t,partition=3"
ANSWERS = {
    "one bean": (
        f'{{"status": 200, "request": {{"mbean": "{BEAN}"}}, "value": {{"records-lag": 4.0, "records-lead": null}}}}',
        [Metric("records_lag", "c", "t", 3, None, None, 4.0)],
    ),
    "one attribute of a bean": (
        f'{{"status": 200, "request": {{"mbean": "{BEAN}", "attribute": "records-lead"}}, "value": 9}}',
        [Metric("records_lead", "c", "t", 3, None, None, 9.0)],
    ),
    "nothing there yet, and what is there": (
        (
            '[{"status": 404, "error_type": "x", "request": {}}, '
            '{"status": 200, "request": {"mbean": "kafka.consumer:*"}, '
            '"value": {"kafka.consumer:clientId=m,name=MaxLag,type=ConsumerFetcherManager": {"Value": 3}}}]'
        ),
        [Metric("max_lag", "m", None, None, None, None, 3.0)],
    ),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_answers_of_jolokia_are_parsed(case: str) -> None:
    text, metrics = ANSWERS[case]
    assert of_jolokia(text) == metrics


@pytest.mark.parametrize(
    "text",
    [
        *("{", "[1]", '"x"', "{}", '{"status": 200, "value": 3}', '{"status": 200, "value": 3, "request": null}'),
        '{"status": 200, "value": {"kafka.consumer:type=x": {"a": 1%s}}, "request": {"mbean": "*"}}' % ("0" * 400),
        "[" * 100_000,
    ],
)
def test_text_that_is_not_an_answer_of_jolokia_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"Jolokia|Expecting"):
        of_jolokia(text)


@pytest.mark.parametrize("text", ["<html><body>Moved</body></html>\n", 'kafka_lag{client_id="c} 1\n'])
def test_text_that_is_not_a_scrape_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):  # the message is the parser's
        of_prometheus(text)


def test_there_is_a_position_for_each_client_fetcher_topic_and_partition(folder: Path) -> None:
    _, metrics, _ = list(rounds(unpacked("legacy-a2-blocked", folder)))[-1]
    positions = {(p.fetcher, p.topic, p.partition): p for p in of_metrics(metrics)}
    assert len(positions) == 8 + 6 + 1 + 1
    assert positions[None, None, None] == Position("backend", reported_lag=0)
    broker = positions["127.0.0.1:9392", None, None]
    assert (broker.reported_lag, broker.queue_chunks) == (None, None)
    assert broker.requests_total
    assert broker.bytes_total
    assert positions["0", "order.events", None].queue_chunks == 2
    assert positions[None, "order.events", 1].reported_lag == 0


def test_an_exporters_own_names_are_mapped_to_ours() -> None:
    text = 'app_lag{consumer="c 1",t="orders",part="2"} 7.0\napp_lag_max{consumer="c 1"} 9.0\nother{consumer="x"} 1.0\n'
    names = {"app_lag": "records_lag", "app_lag_max": "max_lag"}
    names |= {"consumer": "client_id", "t": "topic", "part": "partition"}
    found = {(m.name, m.client_id, m.topic, m.partition, m.value) for m in of_prometheus(text, names)}
    assert found == {("records_lag", "c 1", "orders", 2, 7.0), ("max_lag", "c 1", None, None, 9.0)}
    assert of_prometheus(text) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_metric_can_be_mapped_to_each_of_our_names(name: str) -> None:
    labels = "" if name in ("max_lag", "requests_total", "bytes_total") else ',topic="t"'
    (found,) = of_prometheus(f'mine{{client_id="c"{labels}}} 1.0\n', {"mine": name})
    assert found.name == name


def test_lines_of_other_metrics_are_ignored() -> None:
    text = """\
# TYPE kafka_consumer_bytes_consumed counter
  kafka_consumer_consumer_fetch_manager_metrics_records_lag{client_id="c",topic="t",partition="0"} 1.0
kafka_consumer_consumer_fetch_manager_metrics_records_lag\\t{client_id="c",topic="t",partition="1"}\\t2.0
{"kafka_consumer_consumer_fetch_manager_metrics_records_lag",client_id="c",topic="t",partition="2"} 3.0
# TYPE polled counter
polled{client_id="c"} 4.0
# TYPE "my.bytes" counter
{"my.bytes",client_id="c"} 5.0
""".replace("\\t", "\t")
    names = {"polled_total": "requests_total", "my.bytes_total": "bytes_total"}
    others = '# HELP jvm_x what records_lag is\n# TYPE jvm_x gauge\njvm_x{topic="records_lag"} 1.0\njvm_y 2\n'
    alone = of_prometheus(text, names)
    assert [m.value for m in alone] == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert of_prometheus(others + text, names) == of_prometheus(text + others, names) == alone
    # An invalid line of another metric has no effect; at the end, it shows that the text is incomplete.
    assert of_prometheus("jvm_z{" + "\n" + text, names) == alone
    with pytest.raises(ValueError, match="is not Prometheus text"):
        of_prometheus(text + 'jvm_z{pool="', names)
    with pytest.raises(ValueError, match="is not Prometheus text"):
        of_prometheus(f"<html>\n{others}")
    assert of_prometheus(others) == []


# jmx_exporter 1.0.1 with Kafka 4.3.0, a client.id with special characters, and a rule that also matches
# records-lag-avg and records-lag-max. Only the values are made.
ONE_NAME = """\
kafka_consumer_fetch_manager_records_lag{_objectname="kafka.consumer<type=consumer-fetch-manager-metrics, \
client-id=\\"team/connect:1,x\\", topic=orders, partition=0><>%s",\
clientId="\\"team/connect:1,x\\"",partition="0",topic="orders"} %s
"""
LAG_OF_ONE = 'kafka_consumer_fetch_manager_records_lag{clientId="c",partition="0",topic="orders",} '


def lags(text: str) -> tuple[list[int | None], list[str]]:
    """The lags of partitions, and what the text contradicts itself about."""
    found = of_prometheus(text)
    return [p.reported_lag for p in of_metrics(found) if p.partition is not None], list(contradictions(found))


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 1, 0)])
def test_of_metrics_with_one_name_the_one_whose_attribute_it_is_counts(order: tuple[int, ...]) -> None:
    lines = [ONE_NAME % one for one in (("records-lag", 12), ("records-lag-avg", 250.5), ("records-lag-max", 900))]
    assert lags("".join(lines[n] for n in order)) == ([12], [])
    (found,) = of_prometheus("".join(lines[n] for n in order))
    assert (found.client_id, found.topic, found.partition) == ("team/connect:1,x", "orders", 0)


def test_of_metrics_with_one_name_the_one_without_an_attribute_counts_if_the_others_are_other_metrics() -> None:
    """The exporter names the attribute of each but the first, in any order."""
    own = 'clientId="c",partition="0",topic="orders"'
    bean = "kafka.consumer:type=consumer-fetch-manager-metrics,partition=0,topic=orders,client-id=c<>"
    first = f"kafka_consumer_fetch_manager_records_lag{{{own}}} "
    others = {
        name: f'kafka_consumer_fetch_manager_records_lag{{_objectname="{bean}{name}",{own}}} '
        for name in ("records-lag", "records-lag-avg", "records-lag-max")
    }
    others_alone = f"{others['records-lag-avg']}250.5\n{others['records-lag-max']}900\n"
    assert lags(f"{first}12\n{others_alone}") == ([12], [])
    assert lags(f"{first}900\n{others['records-lag']}12\n{others['records-lag-avg']}250.5\n") == ([12], [])
    # The lag has no value yet, and 900 is another metric.
    assert lags(f"{first}900\n{others['records-lag']}NaN\n{others['records-lag-avg']}250.5\n") == ([], [])
    assert lags(others_alone) == ([], [])


def test_several_equal_values_are_one_value() -> None:
    assert lags(f"{LAG_OF_ONE}0.0\n" * 3) == ([0], [])
    assert lags(f"{LAG_OF_ONE}12.0\n{LAG_OF_ONE}NaN\n{LAG_OF_ONE}NaN\n") == ([12], [])


@pytest.mark.parametrize("values", [(12, 250.5, 900), (900, 250.5, 12), (12, 12, 900)])
def test_of_several_different_values_none_counts_and_the_reason_is_an_error_row(
    values: tuple[float, ...], tmp_path: Path
) -> None:
    """Other series of the scrape are still known."""
    text = "".join(f"{LAG_OF_ONE}{value}\n" for value in values) + (
        'kafka_consumer_consumer_fetch_manager_metrics_records_lead{client_id="c",partition="0",topic="orders"} 5.0\n'
        'kafka_consumer_fetch_manager_records_lag{clientId="c",partition="1",topic="orders",} 7.0\n'
    )
    (tmp_path / "scrape.prom").write_text(text)
    rows = rows_of(ClientMetricsSource, str(tmp_path / "scrape.prom"))
    assert {(r["partition"], r["reported_lag"], r["reported_lead"]) for r in rows if not r["error"]} == {
        (0, None, 5),
        (1, 7, None),
    }
    (error,) = [r["error"] for r in rows if r["error"]]
    assert error == (
        "records_lag has several different values in 1 series, so they are not used: make the agent's rules give each "
        "metric a name of its own"
    )


def test_counters_of_two_clients_with_one_name_are_not_those_of_the_last_one() -> None:
    """An endpoint may collect the metrics of several processes, which have the same client.id."""
    text = "".join(
        f'kafka_consumer_consumer_fetch_manager_metrics_fetch_total{{client_id="c",pod="{pod}"}} {count}\n'
        for pod, count in (("a", 100), ("b", 3))
    )
    found = of_prometheus(text)
    assert [(p.client_id, p.requests_total) for p in of_metrics(found)] == [("c", None)]
    assert len(list(contradictions(found))) == 1


NOW_MS = 1_795_258_585_425
THREE_HOURS_MS = 3 * 3_600_000


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(
    ("live", "dead", "as_of_ms"),
    [
        (f"12 {NOW_MS}", f"900 {NOW_MS - THREE_HOURS_MS}", NOW_MS),
        (f"12 {NOW_MS}", f"12 {NOW_MS - THREE_HOURS_MS}", NOW_MS),
        ("12", f"900 {NOW_MS - THREE_HOURS_MS}", None),
    ],
    ids=["both have a time", "the values are equal", "only the dead one has a time"],
)
def test_a_value_of_hours_ago_beside_a_new_one_of_the_same_series_does_not_count(
    live: str, dead: str, as_of_ms: int | None, order: int
) -> None:
    """What collects the values of several pods may show the last one of a pod that ended hours ago."""
    name, labels = "kafka_consumer_fetch_manager_records_lag", 'client_id="c",topic="t",partition="0"'
    lines = [f'{name}{{{labels},pod="{pod}"}} {value}\n' for pod, value in (("a", dead), ("b", live))]
    found = of_prometheus("".join(lines[::order]))
    assert [(p.reported_lag, p.as_of_ms) for p in of_metrics(found)] == [(12, as_of_ms)]
    assert list(contradictions(found)) == []


def test_two_live_values_of_one_series_contradict_each_other_though_their_times_differ() -> None:
    """Prometheus scrapes two pods some seconds apart: the newer value is not more true of their common name."""
    name = "kafka_consumer_consumer_fetch_manager_metrics_fetch_total"
    values = (100, NOW_MS), (3, NOW_MS - 30_000), (50, NOW_MS - THREE_HOURS_MS)
    found = of_prometheus("".join(f'{name}{{client_id="c",pod="{ms}"}} {value} {ms}\n' for value, ms in values))
    assert [(p.client_id, p.requests_total) for p in of_metrics(found)] == [("c", None)]
    assert len(list(contradictions(found))) == 1


def test_only_the_values_of_one_metric_are_compared_by_their_times() -> None:
    """A position is as of the oldest of the values that it has."""
    own = 'client_id="c",topic="t",partition="0"'
    lag, lead = (f"kafka_consumer_fetch_manager_records_{name}{{{own}}}" for name in ("lag", "lead"))
    found = of_prometheus(f"{lag} 12 {NOW_MS}\n{lag} 900 1\n{lead} 5 {NOW_MS - THREE_HOURS_MS}\n")
    (position,) = of_metrics(found)
    assert (position.reported_lag, position.reported_lead) == (12, 5)
    assert position.as_of_ms == NOW_MS - THREE_HOURS_MS


def test_no_recorded_scrape_or_answer_contradicts_itself(folder: Path) -> None:
    for recording, client in CLIENTS.items():
        for _, *answers in rounds(unpacked(recording, folder) / client):
            assert [list(contradictions(metrics)) for metrics in answers] == [[], []]


# jmx_exporter 1.0.1 with the greedy rule 'kafka.(.+)<type=(.+)-metrics, client-id=(.+)><>([a-z-]+)'.
GREEDY = """\
kafka_consumer_consumer_fetch_manager_bytes_consumed{clientId="\\"team/greedy:1,x\\""} 415948.0
kafka_consumer_consumer_fetch_manager_bytes_consumed{clientId="\\"team/greedy:1,x\\", topic=orders.eu"} 915948.0
kafka_consumer_consumer_fetch_manager_bytes_consumed{clientId="\\"team/greedy:1,x\\", topic=orders_eu"} 915948.0
kafka_consumer_consumer_fetch_manager_records_lag{clientId="\\"team/greedy:1,x\\", topic=orders.eu, partition=0"} 3.0
kafka_consumer_consumer_fetch_manager_records_lag{clientId="\\"team/greedy:1,x\\", topic=orders_eu, partition=0"} 3.0
kafka_consumer_consumer_fetch_manager_records_lag_max{clientId="\\"team/greedy:1,x\\""} 9.0
kafka_consumer_consumer_fetch_manager_records_lag_max\
{clientId="\\"team/greedy:1,x\\", topic=orders.eu, partition=0"} 8.0
"""


def test_a_greedy_rule_s_label_is_a_client_its_topic_and_its_partition() -> None:
    """It used to be clients that no broker knows, such as `…, topic=orders.eu`."""
    client = "team/greedy:1,x"
    assert of_prometheus(GREEDY) == [
        Metric("bytes_total", client, None, None, None, None, 415948.0),
        Metric("records_lag", client, "orders.eu", 0, None, None, 3.0),
        Metric("max_lag", client, None, None, None, None, 9.0),
    ]
    text = 'kafka_consumer_consumer_fetch_manager_metrics_records_lag{topic="t, partition=4, client-id=c-1"} 5\n'
    assert of_prometheus(text) == [Metric("records_lag", "c-1", "t", 4, None, None, 5.0)]


@pytest.mark.parametrize(
    "client_id",
    [
        "consumer-team/orders:1-1",
        "abc|0099|||tbl_REALTIME-t-12",
        "what?*",
        'a "b" \\c',
        "a, topic=b",
        "two\nlines",
        '"',
    ],
)
def test_a_client_id_with_special_characters_is_the_same_from_each_agent(client_id: str) -> None:
    """As javax.management.ObjectName.quote writes it, and then jmx_exporter and Jolokia."""
    quoted = client_id
    for character in '\\"*?':
        quoted = quoted.replace(character, f"\\{character}")
    quoted = f'"{quoted}"'.replace("\n", "\\n")
    label = quoted.replace("\\", "\\\\").replace('"', '\\"')
    name = "kafka_consumer_consumer_fetch_manager_metrics_records_lag"
    scrape = f'{name}{{client_id="{label}",topic="t",partition="3"}} 7.0\n'
    bean = f"kafka.consumer:client-id={quoted},partition=3,topic=t,type=consumer-fetch-manager-metrics"
    answer = {"status": 200, "request": {"mbean": "kafka.consumer:*"}, "value": {bean: {"records-lag": 7.0}}}
    expected = [Metric("records_lag", client_id, "t", 3, None, None, 7.0)]
    assert of_prometheus(scrape) == expected
    assert of_jolokia(json.dumps(answer)) == expected
