"""Which reports about a partition are those of the member that has it.

A client may go on reporting a partition that it has given away: a request log keeps its last offset, a file its last
line. Such a report may be newer than that of the new holder, by a millisecond, as each writes on a timer of its own.
"""

from __future__ import annotations

from pipeline.analytics.keys import GROUP_AT, READER_AT
from pipeline.common.arrow_sql import names_sql

IS_BELIEVED = "(NOT is_held OR is_holder OR NOT is_member)"
"""Whether a report may be about the reader of a partition, if is_held says whether any member has the partition.

A client.id that no member has is believed: it may be another name of the holder. If no member has the partition, as in
a group whose clients assign partitions themselves, all reports are believed.
"""
_ADDRESS = "regexp_replace(host, '^/', '')"
_OF_GROUP, _OF_READER = (names_sql((*key, "client_id")) for key in (GROUP_AT, READER_AT))


def with_holders_sql(rows: str) -> str:
    """The query for `rows` with is_holder and is_member: whether the client has the partition, or is in the group.

    `rows` have READER_AT, client_id, and `host`, the address that the client connects from, NULL if it is not known. At
    another address than the group's members with this client.id, the client may be one of them: hosts have several.

    The query reads `members`, all rows of `group_members` of these clients, and `some_members`, those of these
    partitions.
    """
    return f"""
        WITH holding AS (
            SELECT {_OF_READER}, bool_or(host IS NULL) AS is_anywhere, list({_ADDRESS}) AS holders
            FROM some_members GROUP BY {_OF_READER}
        ),
        in_group AS (SELECT {_OF_GROUP}, bool_and(host IS NULL) AS is_unknown FROM members GROUP BY {_OF_GROUP}),
        there AS (SELECT DISTINCT {_OF_GROUP}, {_ADDRESS} AS host, true AS is_there FROM members)
        SELECT {rows}.*,
            coalesce(is_anywhere OR (is_anywhere IS NOT NULL AND host IS NULL) OR list_contains(holders, host), false)
                AS is_holder,
            is_unknown IS NOT NULL AND (is_unknown OR host IS NULL OR coalesce(is_there, false)) AS is_member
        FROM {rows} LEFT JOIN holding USING ({_OF_READER}) LEFT JOIN in_group USING ({_OF_GROUP})
        LEFT JOIN there USING ({_OF_GROUP}, host)
    """
