"""The report for other programs: JSON with everything on the page, and CSV with a line for each partition."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from io import StringIO

from pipeline.common.epoch import utc
from pipeline.report.cards.attention import needs_attention
from pipeline.report.cards.cards import Card, cards
from pipeline.report.model.details import Partition
from pipeline.report.model.report import Report, names_of
from pipeline.report.text.names import visible

_UNSEEN = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Characters that JSON may contain, but a terminal may take for a command or a line end, or that reverse text."""


def as_json(report: Report) -> str:
    """What the page shows, named as in `model` and `cards`; `attention` has sentences, worst first.

    Cards name their findings by `finding_id`.
    Offsets and bytes are numbers, instants are epoch ms, unknown values are null.
    """
    reported = asdict(report) | {
        "selection": str(report.selection),
        "generated_at": report.generated_at.isoformat(),
        "totals": [asdict(t) for t in report.totals.values()],
        "cards": [_card(card) for card in cards(report)],
        "attention": [item._asdict() for item in needs_attention(report)],
    }
    return _json(reported)


def _card(card: Card) -> dict[str, object]:
    causes = [cause._asdict() for cause in card.causes]
    named = {"subject": card.subject._asdict(), "findings": [f.finding_id for f in card.findings]}
    return asdict(card) | named | {"causes": causes, "commands": [command._asdict() for command in card.commands]}


def partitions_as_json(partitions: Iterable[Partition]) -> str:
    """A list of objects with the columns of `as_csv`; unknown values are null."""
    return _json([{"snapshot_at": _snapshot_at(p)} | asdict(p) for p in partitions])


def _snapshot_at(partition: Partition) -> str:
    return utc(partition.snapshot_id).isoformat()


def _json(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=1)
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def as_csv(partitions: Iterable[Partition]) -> Iterator[str]:
    """A heading with the columns of `model.details.Partition`, and a line for each partition; unknown values are empty.

    The first column is `snapshot_at`, the snapshot's instant in ISO 8601. Invisible characters in texts are escaped,
    and a text that a spreadsheet would take for a formula gets an apostrophe before it.
    """
    text = StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow(["snapshot_at", *names_of(Partition)])
    for partition in partitions:
        values = map(_harmless, asdict(partition).values())
        writer.writerow([_snapshot_at(partition), *values])
        yield text.getvalue()
        text.seek(0)
        text.truncate()
    yield text.getvalue()


def _harmless(value: object) -> object:
    if not isinstance(value, str):
        return value
    text = visible(value)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
