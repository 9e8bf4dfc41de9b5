"""The trends of groups, from their last snapshots."""

from collections.abc import Sequence

from pipeline.report.model import Instant, Point
from pipeline.report.trends import Trend, trends
from tests.helpers.reports import MINUTE, NOON


class TestTrends:
    def trend(self, *points: tuple[int, int | None, int | None], **more: Sequence[int]) -> Trend:
        """The trend for (minute, log end, commit); the ledger has a gap after minute 100."""
        made = [
            Point(
                "east",
                NOON + minute * MINUTE,
                "g",
                None if None in (end, commit) else (end or 0) - (commit or 0),
                more["unknown"][i] if "unknown" in more else 0,
                partitions=more["partitions"][i] if "partitions" in more else 1,
                log_ends=end,
                commits=commit,
            )
            for i, (minute, end, commit) in enumerate(points)
        ]
        late = NOON + 100 * MINUTE
        instants = [Instant("east", p.snapshot_id, int(p.snapshot_id > late), 9) for p in made]
        return trends(instants, made)["east", "g"]

    def test_a_set_back_has_the_time_at_which_the_commits_were_read(self) -> None:
        late = [
            Point(
                "east",
                NOON + minute * MINUTE,
                "g",
                1,
                0,
                log_ends=100 + minute,
                commits=commits,
                captured_ms=NOON + minute * MINUTE + 9_000,
                committed_captured_ms=NOON + minute * MINUTE + 8_000,
            )
            for minute, commits in enumerate([95, 90, 90, 90, 90])
        ]
        found = trends([Instant("east", p.snapshot_id, 0, 5) for p in late], late)["east", "g"]
        assert found.set_back_ms == NOON + MINUTE + 8_000
        # 4 offsets in 4 minutes.
        assert found.produced_per_s == 1 / 60

    def test_snapshots_read_in_the_opposite_order_give_no_rate(self) -> None:
        read = {NOON: NOON + 3 * MINUTE, NOON + MINUTE: NOON + 2 * MINUTE}
        points = [Point("east", at, "g", 1, 0, log_ends=5, captured_ms=ms) for at, ms in read.items()]
        assert trends([Instant("east", at, 0, 2) for at in read], points)["east", "g"].produced_per_s is None

    def test_snapshots_read_in_the_opposite_order_give_no_set_back(self) -> None:
        def set_backs(*read_ms: int) -> int:
            points = [
                Point("east", NOON + n * MINUTE, "g", 1, 0, log_ends=5, commits=commits, committed_captured_ms=ms)
                for n, (ms, commits) in enumerate(zip(read_ms, (4, 3), strict=True))
            ]
            return trends([Instant("east", p.snapshot_id, 0, 2) for p in points], points)["east", "g"].set_backs

        assert set_backs(NOON + 3 * MINUTE, NOON + 2 * MINUTE) == 0
        assert set_backs(NOON + 2 * MINUTE, NOON + 2 * MINUTE) == 0
        assert set_backs(NOON + 2 * MINUTE, NOON + 2 * MINUTE + 1) == 1

    def test_how_fast_log_ends_and_commits_move(self) -> None:
        found = self.trend((0, 0, 0), (1, 600, 60), (2, 1_200, 120), (3, 1_800, 180))
        assert (found.produced_per_s, found.consumed_per_s) == (10, 1)
        # Snapshots before a gap are not used.
        after_a_gap = self.trend((99, 0, 0), (101, 600, 60), (102, 1_200, 120))
        assert (after_a_gap.produced_per_s, after_a_gap.consumed_per_s) == (10, 1)

    def test_commits_that_went_back_unless_partitions_have_gone(self) -> None:
        found = self.trend((0, 100, 80), (1, 110, 30), (2, 120, 40))
        assert (found.set_back_ms, found.set_back_by, found.set_backs) == (NOON + MINUTE, 50, 1)
        often = self.trend((0, 100, 80), (1, 110, 30), (2, 120, 40), (3, 130, 90), (4, 140, 70))
        assert (often.set_back_ms, often.set_back_by, often.set_backs) == (NOON + 4 * MINUTE, 20, 2)
        assert self.trend((0, 100, 80), (1, 110, 30), (2, 120, 80)).set_back_ms is None  # it has caught up again
        assert self.trend((0, 100, 80), (1, 50, 40)).set_back_ms is None  # truncated
        assert self.trend((0, 100, 80), (1, None, 30), (2, 120, 40)).set_back_ms is None

    def test_a_changed_number_of_partitions_is_not_a_trend(self) -> None:
        rows = [(0, 10, 0), (1, 20, 5), (2, 30, 5), (3, 1_000_040, 5)]
        found = self.trend(*rows, partitions=[1, 1, 1, 2])
        assert found.produced_per_s is None
        assert self.trend(*rows).produced_per_s is not None
        gone = [(0, 100, 80), (1, 110, 30)]
        assert self.trend(*gone, partitions=[2, 1]).set_back_ms is None
        assert self.trend(*gone, partitions=[2, 2]).set_back_ms == NOON + MINUTE
