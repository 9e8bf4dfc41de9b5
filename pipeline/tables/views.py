"""The views of a lake: SQL that Spark and DuckDB both understand, with the tables' own names."""

from pipeline.kinds import KINDS, SHARED

_SHARED_AS = " ".join(f"WHEN '{kind}' THEN '{cause}'" for kind, cause in SHARED.items() if kind != cause)
_AHEAD = ", ".join(f"'{kind.name}'" for kind in KINDS if kind.is_loss_ahead)
CAUSES = f"""\
SELECT cluster, id AS cause_id, cause_kind AS kind, CASE WHEN max(cause_id) IS NULL THEN max(group_id) END AS group_id,
       max(client_id) AS client_id, max(instance) AS instance, max(coalesce(cause_topic, topic)) AS topic,
       CASE WHEN count(DISTINCT owner) = 1 AND count(owner) = count(*) THEN max(owner) END AS owner,
       count(DISTINCT group_id) AS groups,
       count(DISTINCT CASE WHEN resolved_at IS NULL THEN group_id END) AS groups_open,
       min(coalesce(grouped_at, first_seen)) AS first_seen, max(last_seen) AS last_seen,
       CASE WHEN count(resolved_at) = count(*) THEN max(resolved_at) END AS resolved_at,
       max_by(severity, gravity) AS severity,
       CASE WHEN cause_kind IN ({_AHEAD}) THEN max(magnitude) ELSE sum(magnitude) END AS magnitude,
       max_by(summary, coalesce(magnitude, -1e300)) AS worst_summary
FROM (
    SELECT *, coalesce(cause_id, finding_id) AS id,
           CASE WHEN cause_id IS NULL THEN kind ELSE CASE kind {_SHARED_AS} ELSE kind END END AS cause_kind,
           CASE severity WHEN 'critical' THEN 3 WHEN 'warning' THEN 2 WHEN 'info' THEN 1 ELSE 0 END AS gravity
    FROM findings
) AS named
GROUP BY cluster, id, cause_kind"""
"""One row for each cause: for all findings with the same cause_id together, and for each other finding by itself."""
VIEWS = {"causes": CAUSES}
