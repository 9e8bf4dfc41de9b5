"""A report on a group with a map of its partitions, objectives and changes."""

from typing import Any

from pipeline.report.model.details import Change, Objective
from pipeline.report.model.heat import Missed, OtherPartitions, PartitionSeries
from pipeline.report.model.report import Instant, Report
from tests.helpers.crowded import points
from tests.helpers.reports import MINUTE, NOON, group, report


def ids(*minutes: int) -> tuple[int, ...]:
    return tuple(NOON + minute * MINUTE for minute in minutes)


def series(partition: int, records: tuple[int | None, ...], topic: str = "orders", **more: Any) -> PartitionSeries:
    """A partition at one snapshot each minute, read by the member m1 all the time."""
    n = len(records)
    plain: dict[str, Any] = {
        "cluster": "east",
        "group_id": "g",
        "topic": topic,
        "partition": partition,
        "total": 3,
        "snapshot_ids": ids(*range(n)),
        "records": records,
        "bytes": tuple(None if value is None else 10 * value for value in records),
        "ms": tuple(None if value is None else 100 * value for value in records),
        "age": tuple(None if value is None else 1_000 * value for value in records),
        "status": ("ok",) * n,
        "member": ("m1",) * n,
        "client": ("app at 10.0.0.1",) * n,
    }
    return PartitionSeries(**plain | more)


def others(records: tuple[int | None, ...], partitions: int, **more: Any) -> OtherPartitions:
    """Other partitions at one snapshot each minute, all known."""
    n = len(records)
    plain: dict[str, Any] = {"cluster": "east", "group_id": "g", "snapshot_ids": ids(*range(n))}
    plain |= {"partitions": (partitions,) * n} | dict.fromkeys(("records", "bytes", "ms", "age"), records)
    plain |= dict.fromkeys(("records_unknown", "bytes_unknown", "ms_unknown", "age_unknown"), (0,) * n)
    return OtherPartitions(**plain | more)


def objective(text: str, slo: str = "fresh", **more: Any) -> Objective:
    known = {"is_met": False, "attainment": 0.9, "window_unknown_ms": 0, "budget_left": -1.0}
    return Objective(
        "east", slo, "g", text, 0.99, 7 * 24 * 60 * MINUTE, **known, burn_rate_1h=1, burn_rate_6h=1, **more
    )


def changed(minute: int, kind: str, rows: int, partitions: int = 0, group_id: str = "g") -> Change:
    return Change("east", NOON + minute * MINUTE, group_id, kind, rows, partitions, None, None, ("app",))


def mapped() -> Report:
    """Ten minutes. Partition 7 falls behind from minute 4 on, when another member takes it; 8 is unknown once."""
    instants = tuple(Instant("east", NOON + n * MINUTE, 0, 10) for n in range(10))
    rising = (0, 0, 0, 0, 200, 400, 600, 800, 1_234_567, 0)
    members = ("m1",) * 4 + ("m2",) * 6
    clients = ("app at 10.0.0.1",) * 4 + ("slow at 10.0.0.2",) * 6
    rows = (
        series(7, rising, member=members, client=clients),
        series(8, (3, 3, None, 3, 3, 3, 3, 3, 3, 3), status=("ok", "ok", "unknown", *["ok"] * 7)),
        series(0, (0,) * 10, topic="refunds", total=52),
    )
    g = group("g", 9, partitions=52)
    return report(
        g,
        group("other", 1),
        instants=instants,
        points=points([g, group("other", 1)], instants),
        partition_series=rows,
        other_partitions=(others((5,) * 10, 49),),
        objectives=(objective("consumer_age_ms < 200000"), objective("consumer_lag <= 500", "small")),
        missed=(Missed("east", "g", "fresh", ids(4, 5, 6), ids(8)),),
        changes=(changed(4, "restarted", 100), changed(4, "moved", 1, 12), changed(6, "left", 1)),
    )
