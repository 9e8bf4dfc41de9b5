"""laglake's public names. The rest is in `pipeline` and `jobs`, and may change.

    laglake.spark_session("notebook")             # a session that has laglake's data sources
    laglake.register(spark)                       # or add them to a session that already exists
    laglake.open_lake(spark, "build/demo/lake")   # the tables of a lake as views, for SQL
    laglake.fetch_memory(settings, 300, 3)        # how much memory a consumer's fetches may take

`laglake.reporters` is for applications, and does not import the rest of laglake.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from laglake.notebook import draw_as_svg, open_lake
    from pipeline.analytics.clients.buffer_bound import buffer_bound, consumer_settings
    from pipeline.analytics.clients.fetch_memory import fetch_memory
    from pipeline.session import register, spark_session

__all__ = [
    "buffer_bound",
    "consumer_settings",
    "draw_as_svg",
    "fetch_memory",
    "open_lake",
    "register",
    "spark_session",
]
_NAMES = {
    "laglake.notebook": ("draw_as_svg", "open_lake"),
    "pipeline.analytics.clients.buffer_bound": ("buffer_bound", "consumer_settings"),
    "pipeline.analytics.clients.fetch_memory": ("fetch_memory",),
    "pipeline.session": ("register", "spark_session"),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Imports what a name needs when it is first used: an application with a reporter needs neither Spark nor Kafka."""
    if name == "reporters":
        return import_module("laglake.reporters")
    if name not in _MODULES:
        raise AttributeError(f"module 'laglake' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
