"""The agents that serve the metrics of a Java consumer: jmx_exporter's and Jolokia's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from demo.embedded_kafka.nodes import HOST, free_ports

EVERYTHING = "rules: [{pattern: '.*'}]\n"
"""jmx_exporter's configuration: all MBeans, with jmx_exporter's own names."""


@dataclass(frozen=True)
class Agent:
    """The value of `-javaagent:`, and the URL that the agent then serves."""

    option: str
    endpoint: str


def jmx_exporter(directory: Path) -> Agent:
    """Prometheus text on a free port; its configuration is written into the folder."""
    (port,) = free_ports(1)
    rules = directory / "jmx_exporter.yml"
    rules.write_text(EVERYTHING)
    return Agent(f"jmx_prometheus_javaagent-1.0.1.jar={HOST}:{port}:{rules}", f"http://{HOST}:{port}/metrics")


def jolokia() -> Agent:
    """Jolokia's JSON on a free port."""
    (port,) = free_ports(1)
    option = f"jolokia-agent-jvm-2.2.9-javaagent.jar=host={HOST},port={port},discoveryEnabled=false"
    return Agent(option, f"http://{HOST}:{port}/jolokia")
