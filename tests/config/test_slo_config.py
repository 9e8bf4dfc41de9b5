"""The settings of service-level objectives, and the line for each mistake."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.common.errors import ConfigError
from pipeline.config import Config
from pipeline.config.slo import OBJECTIVE_COLUMNS, Objective

SMALLEST = '[lake]\nroot = "/lake"\n[clusters.east]\nbootstrap_servers = ["10.0.0.1:9092"]\n'
GROUPS, TARGET, AGE = 'groups = "^a"\n', "target = 0.99\n", 'objective = "consumer_age_ms < 60000"\n'
Load = Callable[..., Config]


def test_an_objective_has_a_window_of_a_week_and_all_topics(load: Load) -> None:
    slo = load(f"{SMALLEST}[slo.checkout]\n{GROUPS}{TARGET}{AGE}").slo["checkout"]
    assert (slo.groups, slo.topics, slo.target, slo.window_ms) == ("^a", None, 0.99, 7 * 86_400_000)
    assert (slo.limit, slo.limit.most) == (Objective("consumer_age_ms", False, 60_000), 59_999)
    assert load(SMALLEST).slo == {}


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("consumer_lag<=5", "consumer_lag <= 5"),
        (" consumer_lag_bytes  <  1_000_000 ", "consumer_lag_bytes < 1000000"),
        ("consumer_lag_ms <= 0", "consumer_lag_ms <= 0"),
        ("consumer_lag_stable < 9223372036854775807", "consumer_lag_stable < 9223372036854775807"),
    ],
)
def test_an_objective_is_always_written_in_the_same_way(load: Load, text: str, written: str) -> None:
    slo = load(f'{SMALLEST}[slo.x]\n{GROUPS}{TARGET}objective = "{text}"').slo["x"]
    assert slo.objective == str(slo.limit) == written
    assert slo.limit.most == int(written.rsplit(maxsplit=1)[-1]) - (0 if "=" in written else 1)


NOT_AN_OBJECTIVE = 'slo.x.objective: must be a column and a limit, such as "consumer_age_ms < 60000"'


@pytest.mark.parametrize(
    ("text", "line"),
    [
        *(
            (f'{GROUPS}{TARGET}objective = "{text}"', NOT_AN_OBJECTIVE)
            for text in (
                *("", "consumer_age_ms", "consumer_age_ms > 5", "consumer_age_ms < 1m", "consumer_age_ms < -1"),
                *("consumer_age_ms < 5 OR true", "consumer_lag < 9223372036854775808", "consumer_lag < ٣"),
                *("consumer_lag < 60_", "consumer_lag < 1__0", f"consumer_lag < {'9' * 5_000}"),
            )
        ),
        (
            f'{GROUPS}{TARGET}objective = "headroom < 5"',
            f"slo.x.objective: must limit one of {', '.join(OBJECTIVE_COLUMNS)}",
        ),
        (f"{TARGET}{AGE}", "slo.x.groups: is required"),
        (f"{GROUPS}{AGE}", "slo.x.target: is required"),
        *(
            (f"{GROUPS}{AGE}target = {target}", "slo.x.target: must be more than 0 and less than 1, such as 0.99")
            for target in ("0", "1", "99", "-0.5", "nan", "inf")
        ),
        (f'{GROUPS}{AGE}target = "99 %"', "slo.x.target: must be a number"),
        (f'{GROUPS}{AGE}{TARGET}window = "119h"', "slo.x: window must be at least 5 days"),
        *(
            (
                f'{GROUPS}{AGE}target = {target}\nwindow = "{window}"',
                "slo.x: window must be at most 5 days / (1 - target), or no finding could ever begin",
            )
            for target, window in (("0.8", "601h"), ("0.9", "90d"), ("0.5", "11d"), ("0.1", "6d"))
        ),
        (
            f'{GROUPS}{AGE}{TARGET}window = "week"',
            'slo.x.window: must be a duration such as "500ms", "30s", "5m", "2h" or "1d"',
        ),
        (
            f'groups = "("\n{AGE}{TARGET}',
            "slo.x.groups: is not a regular expression: missing ), unterminated subpattern at position 0",
        ),
        (f'{GROUPS}{AGE}{TARGET}topic = "^o"', "slo.x.topic: unknown key; did you mean topics?"),
        (
            f'{GROUPS}{AGE}{TARGET}window = "90d"',
            "retention.lag must be a day more than slo.x.window",
        ),
        (
            f'{GROUPS}{AGE}{TARGET}window = "9d"\n[retention]\nlag = "9d"',
            "retention.lag must be a day more than slo.x.window",
        ),
        (
            f'{GROUPS}{AGE}{TARGET}[slo."a b"]\n{GROUPS}{AGE}{TARGET}',
            "slo.'a b': the name of an objective is 1 to 64 letters, digits, dots, dashes or underscores",
        ),
    ],
)
def test_a_mistake_is_one_line_with_file_and_key(load: Load, tmp_path: Path, text: str, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(f"{SMALLEST}[slo.x]\n{text}")
    assert str(caught.value) == f"{tmp_path}/c.toml: {line}"


@pytest.mark.parametrize(
    ("target", "window"), [("0.8", "25d"), ("0.9", "50d"), ("0.5", "10d"), ("0.99", "366d"), ("0.0001", "5d")]
)
def test_a_window_may_be_as_long_as_a_group_that_never_meets_the_objective_has_a_finding(
    load: Load, target: str, window: str
) -> None:
    text = f'[slo.x]\n{GROUPS}{AGE}target = {target}\nwindow = "{window}"\n[retention]\nlag = "forever"'
    assert load(SMALLEST + text).slo["x"].window_ms == int(window[:-1]) * 86_400_000


@pytest.mark.parametrize(
    ("window", "kept"), [("5d", '"6d"'), ("120h", '"6d"'), ("89d", '"90d"'), ("366d", '"forever"')]
)
def test_a_window_may_be_as_long_as_its_rows_are_kept(load: Load, window: str, kept: str) -> None:
    text = f'[slo.x]\n{GROUPS}{AGE}{TARGET}window = "{window}"\n[retention]\nlag = {kept}'
    assert load(SMALLEST + text).slo["x"].window_ms >= 5 * 86_400_000
