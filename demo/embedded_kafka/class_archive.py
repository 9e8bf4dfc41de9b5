"""Java's class data sharing: an archive of a broker's classes, which is mapped into memory instead of parsed.

With it, a broker starts in 1 s instead of 2, with half the CPU time. The archive (50 MB) is written once per checkout,
in about 4 s, by a broker that is started for this purpose. Another version of Java ignores it.
"""

import logging
import tempfile
import time
from pathlib import Path

from demo.embedded_kafka.broker_process import BrokerProcess
from demo.embedded_kafka.children import Children
from demo.embedded_kafka.jars import locked
from demo.embedded_kafka.java_tools import ARCHIVE, JavaTools
from demo.embedded_kafka.nodes import plan_nodes, render_properties, server_properties
from demo.errors import BrokerError

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
START_TIMEOUT_S = 60.0
HEAP_MB = 256


def ensure_class_archive(jars: Path) -> None:
    """Writes the archive beside the jars if it does not exist. Without it everything works, only more slowly."""
    archive = jars / ARCHIVE
    if archive.exists():
        return
    with locked(jars.with_name(f".{jars.name}.lock")):
        if archive.exists():
            return
        with tempfile.TemporaryDirectory(dir=jars.parent, prefix=f".{ARCHIVE}-") as scratch:
            try:
                written = _written_by_a_broker(jars, Path(scratch))
            except BrokerError as error:
                logging.getLogger(__name__).info("no class archive: %s", error)
                return
            if written.exists():
                written.rename(archive)


def _written_by_a_broker(jars: Path, scratch: Path) -> Path:
    (node,) = plan_nodes(scratch, 1)
    node.directory.mkdir()
    node.configuration_file.write_text(render_properties(server_properties(node, [node], {}, {})))
    children = Children(scratch)
    try:
        tools = JavaTools(jars, scratch, children.marker, archive_to_write=scratch / ARCHIVE)
        tools.write_log_configuration()
        broker = BrokerProcess(node, tools, children, HEAP_MB)
        broker.finish_formatting(broker.start_formatting(CLUSTER_ID, {}), START_TIMEOUT_S)
        broker.launch()
        broker.wait_until_listening(time.monotonic() + START_TIMEOUT_S)
        broker.stop()  # Java writes the archive when it ends
    finally:
        children.close()
    return scratch / ARCHIVE
