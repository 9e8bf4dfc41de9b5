"""Many runs in which findings begin, change and end, and channels fail: what each receiver has got at the end."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.config import Config, load_config
from pipeline.notify.announce import _rows
from pipeline.notify.due import plan
from pipeline.notify.http import Failure
from pipeline.notify.sending import Sent
from tests.helpers.findings import NOW, config_of, finding

RUNS = 12
HOUR = timedelta(hours=1)
DOWN = Failure("Connection refused")
Life = tuple[int, int | None, list[str]]
"""The run in which a finding begins, the one in which it ends, and its severity in each run."""


@st.composite
def lives(draw: st.DrawFn) -> Life:
    """A life of a finding, whose severity never falls."""
    begins = draw(st.integers(0, RUNS - 1))
    ends = draw(st.none() | st.integers(begins + 1, RUNS))
    worse = sorted(draw(st.lists(st.integers(0, 2), min_size=RUNS, max_size=RUNS)))
    return begins, ends, [("info", "warning", "critical")[n] for n in worse]


def rows_at(run: int, all_lives: list[Life]) -> list[dict[str, Any]]:
    """The findings as a run sees them."""
    found = []
    for number, (begins, ends, severities) in enumerate(all_lives):
        if begins <= run:
            is_over = ends is not None and ends <= run
            found.append(
                finding(
                    f"f{number}",
                    group_id=f"group-{number}",
                    severity=severities[min(run, (ends or RUNS) - 1)],
                    first_seen=NOW + begins * HOUR,
                    resolved_at=NOW + ends * HOUR if is_over and ends is not None else None,
                )
            )
    return found


def played(config: Config, all_lives: list[Life], accepts: list[int]) -> list[tuple[str, str]]:
    """What the receiver has got after all runs. In each it accepts some messages and then fails; in the last, all."""
    known: dict[tuple[str, ...], dict[str, Any]] = {}
    got: list[tuple[str, str]] = []
    for run in range(RUNS + 1):
        now = NOW + run * HOUR
        found = plan(rows_at(run, all_lives), known.values(), config, now)
        sent = Sent()
        for number, due in enumerate(found.due.get("chat", [])):
            if sent.why:
                sent.untried.append(due)
            elif run == RUNS or number < accepts[run]:
                sent.tried.append(([due], None))
                got.append((due.finding.finding_id, due.event))
            else:
                sent.tried.append(([due], DOWN))
                sent.why = DOWN.reason
        for row in (*found.held, *_rows(sent, now)):
            known[row.cluster, row.finding_id, row.channel, row.event] = row._asdict()
    return got


def expected(number: int, life: Life, got: list[tuple[str, str]], silence: tuple[int, int]) -> list[str]:
    """What the receiver must have got of one finding, given whether it has got its beginning."""
    _, ends, severities = life
    since, lasts = silence
    is_silent = number % 2 == 0 and since <= RUNS < since + lasts
    if ends is not None:  # the beginning may have been held or have failed until the end
        return ["opened", "resolved"] if (f"f{number}", "opened") in got else []
    was_severe = (f"f{number}", "opened") in got
    return ["opened"] if was_severe or (severities[-1] != "info" and not is_silent) else []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("config")


@settings(deadline=None)
@given(
    all_lives=st.lists(lives(), max_size=6),
    accepts=st.lists(st.sampled_from([0, 0, 0, 1, 6]), min_size=RUNS, max_size=RUNS),
    silence=st.tuples(st.integers(0, RUNS), st.integers(1, RUNS)),
)
def test_whatever_happens_the_receiver_gets_each_beginning_and_end_once(
    folder: Path, all_lives: list[Life], accepts: list[int], silence: tuple[int, int]
) -> None:
    first, last = (NOW + run * HOUR for run in (silence[0], sum(silence)))
    times = f'from = "{first.isoformat()}"\nuntil = "{last.isoformat()}"\n'
    text = f'[[silences]]\ngroup = "-[024]$"\nreason = "r"\n{times}[notifications]\nchannel = "chat"\nmax_age = "1h"\n'

    def load(text: str) -> Config:
        (folder / "c.toml").write_text(text)
        return load_config(folder / "c.toml", {})

    got = played(config_of(load, text), all_lives, accepts)
    for number, life in enumerate(all_lives):
        events = [event for name, event in got if name == f"f{number}"]
        assert events == expected(number, life, got, silence)
