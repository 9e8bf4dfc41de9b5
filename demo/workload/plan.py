"""The parts of the demo's workload: topics with their rates, groups with their behaviour, and when things happen."""

from dataclasses import dataclass


@dataclass(frozen=True)
class TopicPlan:
    """A topic, its partitions, how many records per second are written to it in total, and their size."""

    name: str
    partitions: int
    records_per_s: float
    record_bytes: int


@dataclass(frozen=True)
class Pace:
    """When things happen, in seconds after the start. Tests use shorter times than the demo.

    `stop_after_s`: search-stopped and archive-truncated read for this long, then never again.
    `rewind_every_s`: audit-rewound goes back to the beginning of its logs at this interval.
    `truncate_every_s`: records are deleted at this interval: in the archive after its reader has stopped, and in the
    invoices from `retain_s` on.
    """

    stop_after_s: float = 8.0
    rewind_every_s: float = 30.0
    truncate_every_s: float = 5.0
    retain_s: float = 60.0


DEMO_PACE = Pace()

ORDERS = TopicPlan("orders", partitions=6, records_per_s=120, record_bytes=400)
INVOICES = TopicPlan("invoices", partitions=4, records_per_s=60, record_bytes=900)
SEARCHES = TopicPlan("searches", partitions=3, records_per_s=50, record_bytes=150)
LEDGER = TopicPlan("ledger", partitions=2, records_per_s=30, record_bytes=250)
AUDIT = TopicPlan("audit", partitions=3, records_per_s=20, record_bytes=1200)
ARCHIVE = TopicPlan("archive", partitions=2, records_per_s=40, record_bytes=600)
PAYMENTS = TopicPlan("payments", partitions=4, records_per_s=40, record_bytes=300)
TOPICS = (ORDERS, INVOICES, SEARCHES, LEDGER, AUDIT, ARCHIVE, PAYMENTS)

CHECKOUT_HEALTHY = "checkout-healthy"
BILLING_SLOW = "billing-slow"
SEARCH_STOPPED = "search-stopped"
LEDGER_READ_COMMITTED = "ledger-read-committed"
AUDIT_REWOUND = "audit-rewound"
ARCHIVE_TRUNCATED = "archive-truncated"
ORDERS_KIP848 = "orders-kip848"
PAYMENTS_PARTIAL = "payments-partial"
GROUPS = (
    CHECKOUT_HEALTHY,
    BILLING_SLOW,
    SEARCH_STOPPED,
    LEDGER_READ_COMMITTED,
    AUDIT_REWOUND,
    ARCHIVE_TRUNCATED,
    ORDERS_KIP848,
    PAYMENTS_PARTIAL,
)
