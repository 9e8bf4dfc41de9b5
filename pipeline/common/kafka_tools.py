"""How commands of Kafka's own tools are written, in advice and on cards."""

from __future__ import annotations

BROKER = "$BOOTSTRAP"
"""Where a command has the address of a broker: a variable of the shell that runs it."""


def tool(name: str, *words: str, broker: str = BROKER) -> str:
    """A command of a tool. The tool's name is without .sh, as most packages of Kafka install it.

    >>> tool("topics", "--describe")
    'kafka-topics --bootstrap-server $BOOTSTRAP --describe'
    """
    return " ".join((f"kafka-{name}", "--bootstrap-server", broker, *words))
