"""Reads the digest of some days from a lake, and sends it to the channels of people."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from pipeline.common.epoch import DAY_MS, to_epoch_ms
from pipeline.config import Config
from pipeline.lake import Lake, instant_literal, of_each, one_of
from pipeline.notify.digest import Digest, digest_of, message_of
from pipeline.notify.http import Failure
from pipeline.notify.sending import send_message
from pipeline.tables import FINDINGS, SLO, SNAPSHOTS

FOR_PEOPLE = ("apprise", "webhook")
"""The types of channels that get a digest. The others raise alarms."""


def read_digest(lake: Lake, config: Config, clusters: Collection[str], until: datetime, length_ms: int) -> Digest:
    """What happened in some clusters in the time of this length that ends at an instant."""
    since = until - timedelta(milliseconds=length_ms)
    first_ms, last_ms = to_epoch_ms(since), to_epoch_ms(until)
    of_clusters = one_of("cluster", sorted(clusters))
    lasted = (
        f"first_seen <= {instant_literal(last_ms)} "
        f"AND (resolved_at IS NULL OR resolved_at > {instant_literal(first_ms)})"
    )
    of_causes = f"SELECT DISTINCT cause_id FROM {{findings}} WHERE {of_clusters} AND {lasted}"
    wanted = f"{of_clusters} AND ({lasted} OR cause_id IN ({of_causes}))"
    findings = lake.query(f"SELECT * FROM {{findings}} WHERE {wanted}", FINDINGS)
    counted = lake.query(
        "SELECT cluster, status, count(*) AS snapshots FROM {snapshots} "
        f"WHERE {of_clusters} AND snapshot_id > {first_ms} AND snapshot_id <= {last_ms} GROUP BY cluster, status",
        SNAPSHOTS,
    )
    snapshots: dict[str, dict[str, int]] = {}
    for row in counted:
        snapshots.setdefault(row["cluster"], {})[row["status"]] = row["snapshots"]
    objectives = _newest_objectives(lake, of_clusters, last_ms) if config.slo else []
    return digest_of(findings, objectives, snapshots, config, (since, until))


def _newest_objectives(lake: Lake, of_clusters: str, last_ms: int) -> list[dict[str, object]]:
    """The rows of SLO at the newest snapshot of each cluster, if it is not older than a day."""
    recent = f"snapshot_id > {last_ms - DAY_MS} AND snapshot_id <= {last_ms}"
    where = f"{of_clusters} AND {recent}"
    newest = lake.query(f"SELECT cluster, max(snapshot_id) AS newest FROM {{slo}} WHERE {where} GROUP BY cluster", SLO)
    at = of_each({row["cluster"]: [row["newest"]] for row in newest})
    columns = "cluster, slo, group_id, objective, target, attainment, budget_left"
    return lake.query(f"SELECT {columns} FROM {{slo}} WHERE ({at}) AND attainment < target", SLO) if newest else []


def send_digest(digest: Digest, config: Config) -> dict[str, Failure | None]:
    """Sends each channel for people the part about what its owners have, and returns which of them failed, and why.

    A channel without findings and without missed objectives gets a message that says so.
    """
    report_url = config.notifications.report_url
    names = sorted(name for name, channel in config.channels.items() if channel.type in FOR_PEOPLE)
    return {name: send_message(name, config, message_of(digest.of_channel(name), report_url)) for name in names}
