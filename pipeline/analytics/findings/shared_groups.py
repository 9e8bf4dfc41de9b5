"""Which groups share a finding, as its evidence says: `groups` by name, and digests of the others if there are many."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from hashlib import sha256
from itertools import accumulate
from typing import Any

from pipeline.kinds.text import LISTED, as_json

_MOST_TEXT = 50_000
"""The most characters of all names. A name may have 32,767."""
_WIDTH = 8


@lru_cache(100_000)
def digest(group_id: str) -> str:
    """A group in eight characters."""
    return b64encode(sha256(group_id.encode(errors="surrogatepass")).digest()[:6]).decode()


def digests(evidence: Mapping[str, Any]) -> set[str]:
    """All groups of an evidence."""
    others = evidence.get("other_groups") or ""
    cut = {others[at : at + _WIDTH] for at in range(0, len(others), _WIDTH)}
    return {digest(name) for name in evidence.get("groups") or ()} | cut


def groups_of(evidence: str | None) -> list[str]:
    """The groups that an evidence names."""
    return list(json.loads(evidence or "{}").get("groups") or ())


def listed(names: Iterable[str], others: Collection[str] = ()) -> dict[str, Any]:
    """The groups as facts of an evidence. `others` are digests of those whose names are not known any more."""
    every = sorted(names, key=lambda name: (len(name), name))  # no long name takes the place of others
    length = accumulate(map(len, every))
    shown = [name for name, until in zip(every[:LISTED], length, strict=False) if until <= _MOST_TEXT]
    cut = sorted({digest(name) for name in every[len(shown) :]} | ({*others} - {*map(digest, every)}))
    return {"groups": sorted(shown), "groups_affected": len(shown) + len(cut), "other_groups": "".join(cut) or None}


def with_groups(evidence: str | None, several: Iterable[str | None]) -> str:
    """An evidence with the groups of several."""
    names: set[str] = set()
    known: set[str] = set()
    for text in several:
        facts = json.loads(text or "{}")
        names |= {*facts.get("groups", ())}
        known |= digests(facts)
    return as_json(json.loads(evidence or "{}") | listed(names, known))
