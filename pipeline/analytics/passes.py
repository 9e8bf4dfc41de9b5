"""The two passes over the partitions of a batch: rulers with brokers' curves, then the lag and status of each reader.

Each is a function of one bucket of partitions, which makes several tables at once. Spark's workers import this module
to call it, so it must not import what only the driver needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.analytics.findings import suspects
from pipeline.analytics.lag import lag
from pipeline.analytics.log_index import index
from pipeline.analytics.page_cache.reuse_distance import BrokerCurves, partial_curves
from pipeline.analytics.status import partition_status as status
from pipeline.common.buckets import Bucket
from pipeline.config.status import StatusConfig
from pipeline.tables import WATERMARKS

RULER_PARTS = index.INDEX_PARTS | {"watermarks": WATERMARKS.some((*index.INDEX_PARTS["watermarks"].names, "replicas"))}
"""What `rulers_and_curves` is computed from."""
READER_PARTS = {
    **lag.LAG_PARTS,
    "watermarks": WATERMARKS.some(
        [*dict.fromkeys((*lag.LAG_PARTS["watermarks"].names, *suspects.SUSPECT_PARTS["watermarks"].names))]
    ),
    "known": status.STATUS_PARTS["known"],
    "earlier": suspects.SUSPECT_PARTS["earlier"],
}
"""What `readers_in_bucket` is computed from. There may be no part `reported`, `previous` or `files`."""


def rulers_and_curves(bucket: Bucket, batch: Sequence[int]) -> Bucket:
    """The `rulers` of some partitions as of each snapshot of the batch, and their part of the brokers' `curves`.

    These are rows of RULER_ROWS, and of PARTIAL_CURVES. There may be no part `late`.
    """
    rulers = index.rulers_in_bucket(bucket, batch[0])
    is_of_batch = pc.is_in(bucket["watermarks"]["snapshot_id"], pa.array(batch, pa.int64()))
    watermarks = bucket["watermarks"].filter(is_of_batch)
    return {"rulers": rulers, "curves": partial_curves({"watermarks": watermarks, "rulers": rulers})}


def readers_in_bucket(
    bucket: Bucket,
    groups: pa.Table,
    curves: BrokerCurves,
    reach: Mapping[int, int],
    before: Mapping[int, int],
    settings: StatusConfig,
) -> Bucket:
    """The rows of LAG (`lag`), of PARTITION_STATUS (`statuses`) and of SUSPECTS (`suspects`) for some partitions.

    See `lag_rows` for `groups` and `curves`, both `lag_rows` and `partition_status` for `reach`, and
    `suspects_in_bucket` for `before`.
    """
    made = {"lag": lag.lag_rows(bucket, groups, curves, reach)}
    made["statuses"] = status.partition_status({**bucket, **made}, settings, reach)
    made["suspects"] = suspects.suspects_in_bucket({**bucket, **made}, before, settings)
    return made
