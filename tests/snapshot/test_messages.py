"""What a run reports about a snapshot, in one line for people."""

from datetime import UTC, datetime

from pipeline.lake.ledger import Claim, Summary


def test_a_snapshot_is_named_by_its_instant() -> None:
    assert str(Claim("east", 1_769_860_800_000, "run", datetime.now(UTC))) == "east 2026-01-31T12:00:00Z"


def test_the_message_counts_errors_that_occurred_more_than_once() -> None:
    errors = [("group", "g", "NOT_COORDINATOR", 1), ("watermarks", "t-0 and others", "LEADER_NOT_AVAILABLE", 12)]
    errors += [("client_positions", None, "no answer", 1), ("broker", "2", "REQUEST_TIMED_OUT", 1)]
    summary = Summary("partial", groups=2, partitions=3, rows={"committed_offsets": 4}, errors=errors)
    assert summary.message == (
        "2 groups, 3 partitions, 4 commits; group g: NOT_COORDINATOR; watermarks t-0 and others: LEADER_NOT_AVAILABLE, "
        "12 times; client_positions: no answer; and 1 more"
    )
    assert Summary.of_failure("east", "no route").message == "cluster east: no route"
