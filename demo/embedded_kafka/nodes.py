"""The configuration of the nodes of an embedded Kafka: pure functions, no processes and no files.

In KRaft mode, node 1 is broker and controller, and every other node is only a broker. So the quorum never depends on a
node that a test kills or freezes, as long as it is not node 1.
"""

import random
import socket
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HOST = "127.0.0.1"
# Below Linux's ephemeral ports (from 32768), so that no client connection can take the port of a killed broker.
PORTS = range(20_000, 32_000)


@dataclass(frozen=True)
class Listener:
    """A further listener of each broker: its security protocol, and its properties without `listener.name.NAME.`.

    Clients are sent to `advertised`, host:port, if it is given: a proxy in front of the listener.
    """

    protocol: str
    properties: Mapping[str, str]
    advertised: str | None = None


@dataclass(frozen=True)
class Node:
    """One node: its id, its folder, and its ports (`controller_port` only on node 1, `ports` by name of a listener)."""

    node_id: int
    directory: Path
    port: int
    sasl_port: int
    controller_port: int | None
    ports: Mapping[str, int] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """host:port of the listener without authentication."""
        return f"{HOST}:{self.port}"

    @property
    def sasl_address(self) -> str:
        """host:port of the listener that needs a user and a password (SASL_PLAINTEXT, PLAIN)."""
        return f"{HOST}:{self.sasl_port}"

    def listener_address(self, name: str) -> str:
        """host:port of a further listener."""
        return f"{HOST}:{self.ports[name]}"

    @property
    def log_dir(self) -> Path:
        """Kafka's log.dirs: it has a folder for every partition, `<topic>-<partition>`."""
        return self.directory / "data"

    @property
    def log_file(self) -> Path:
        """The node's own log."""
        return self.directory / "server.log"

    @property
    def console_file(self) -> Path:
        """The output of the Java process itself, before there is a log."""
        return self.directory / "console.log"

    @property
    def configuration_file(self) -> Path:
        """The path of server.properties."""
        return self.directory / "server.properties"


def plan_nodes(directory: Path, brokers: int, listeners: Collection[str] = ()) -> tuple[Node, ...]:
    """Nodes 1 … `brokers` under `directory`, with ports that are free now, also for the further `listeners`."""
    ports = iter(free_ports((2 + len(listeners)) * brokers + 1))
    return tuple(
        Node(
            node_id,
            directory / f"node-{node_id}",
            next(ports),
            next(ports),
            next(ports) if node_id == 1 else None,
            {name: next(ports) for name in listeners},
        )
        for node_id in range(1, brokers + 1)
    )


def free_ports(count: int) -> list[int]:
    """`count` different ports on which nothing listens at this moment."""
    found: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        if len(found) == count:
            break
        with socket.socket() as probe:
            # Kafka also sets SO_REUSEADDR, so a port in TIME_WAIT can be used as well.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        found.append(port)
    return found


def server_properties(
    node: Node,
    nodes: Sequence[Node],
    users: Mapping[str, str],
    extra: Mapping[str, str],
    further: Mapping[str, Listener] | None = None,
) -> dict[str, str]:
    """The node's server.properties; `extra` overrides everything else."""
    listeners = _listeners(node, nodes, further or {})
    return listeners | _small(len(nodes)) | (_security(users) if users else {}) | dict(extra)


def render_properties(properties: Mapping[str, str]) -> str:
    """The text of a Java .properties file, in which a backslash begins an escape."""
    return "".join(f"{key}={value}\n".replace("\\", "\\\\") for key, value in properties.items())


def _listeners(node: Node, nodes: Sequence[Node], further: Mapping[str, Listener]) -> dict[str, str]:
    controller = f"{HOST}:{nodes[0].controller_port}"
    own = f"CONTROLLER://{controller}" if node.controller_port is not None else None
    listeners = [f"PLAINTEXT://{node.address}", f"SASL://{node.sasl_address}"]
    advertised = list(listeners)
    protocols = ["CONTROLLER:PLAINTEXT", "PLAINTEXT:PLAINTEXT", "SASL:SASL_PLAINTEXT"]
    properties: dict[str, str] = {}
    for name, listener in further.items():
        address = node.listener_address(name)
        listeners.append(f"{name}://{address}")
        advertised.append(f"{name}://{listener.advertised or address}")
        protocols.append(f"{name}:{listener.protocol}")
        properties |= {f"listener.name.{name.lower()}.{key}": value for key, value in listener.properties.items()}
    return properties | {
        "node.id": str(node.node_id),
        "process.roles": "broker,controller" if own else "broker",
        "controller.quorum.voters": f"{nodes[0].node_id}@{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": ",".join([*listeners, own] if own else listeners),
        "advertised.listeners": ",".join(advertised),
        "listener.security.protocol.map": ",".join(protocols),
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": jaas_of_plain({}),
        "log.dirs": str(node.log_dir),
    }


def _small(brokers: int) -> dict[str, str]:
    """Settings for a temporary cluster on two shared cores: few threads, small internal topics."""
    replicas = str(min(3, brokers))
    partitions = "4" if brokers == 1 else "12"
    return {
        "auto.create.topics.enable": "false",
        "default.replication.factor": replicas,
        "min.insync.replicas": "1",
        "offsets.topic.num.partitions": partitions,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.num.partitions": partitions,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": "1",
        # A test may hold a transaction open for as long as it likes (default: 15 minutes).
        "transaction.max.timeout.ms": "86400000",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        # Longer than the default of 9 s: on a busy machine a broker may be silent for that long. It would lose its
        # partitions, and records written with acks=1. A killed broker that comes back has to wait this long, too.
        "broker.session.timeout.ms": "18000",
        # A broker that stops waits for a heartbeat (default: 2 s).
        "broker.heartbeat.interval.ms": "500",
        # 128 MB by default, half of the heap.
        "log.cleaner.dedupe.buffer.size": "4194304",
        # 10 MB by default, twice for every partition.
        "log.index.size.max.bytes": "1048576",
        "num.network.threads": "2",
        "num.io.threads": "4",
        "background.threads": "2",
        "num.recovery.threads.per.data.dir": "2",
    }


def _security(users: Mapping[str, str]) -> dict[str, str]:
    """The users of the SASL listener, and ACLs; without an ACL all is allowed. The other listener has all rights."""
    return {
        "listener.name.sasl.plain.sasl.jaas.config": jaas_of_plain(users),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "true",
    }


def jaas_of_plain(users: Mapping[str, str]) -> str:
    """The value of `plain.sasl.jaas.config` of a listener with these users."""
    accounts = "".join(f' user_{user}="{_quoted(password)}"' for user, password in users.items())
    return f"org.apache.kafka.common.security.plain.PlainLoginModule required{accounts};"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
