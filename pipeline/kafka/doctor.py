"""Checks whether a run would succeed: can each cluster be reached, does it allow a snapshot, can the lake be written?

It asks the brokers as a snapshot does, but from this machine; executors elsewhere may reach different ones. It does not
need Spark.
"""

from __future__ import annotations

import shlex
from collections.abc import Generator, Iterable, Iterator, Sequence, Set

from kafka.admin import ACLOperation
from kafka.protocol.admin import DescribeClusterRequest, DescribeLogDirsRequest
from kafka.protocol.metadata import MetadataRequest

from pipeline.common.check import Check, write_into
from pipeline.common.errors import ClusterError, remedy_of, unexpected
from pipeline.common.words import counted, named
from pipeline.config import ClusterConfig, LakeConfig
from pipeline.kafka.client import KafkaClient
from pipeline.kafka.failures import Failure, error_name
from pipeline.kafka.group_members import read_members
from pipeline.kafka.groups import Unproven, list_groups
from pipeline.kafka.options import SourceOptions
from pipeline.kafka.probe import speaks_http

REFUSALS = ("GROUP_AUTHORIZATION_FAILED", "TOPIC_AUTHORIZATION_FAILED")
GROUPS_TRIED = 500
"""The most groups that are described. The others are only counted."""
_TODO = {
    "unknown host": "correct the name in bootstrap_servers, or in DNS; executors look it up as well",
    "connection refused": "correct the port in bootstrap_servers, or start the broker: nothing listens there",
    "no answer in time": "look for a firewall, or for a route that is missing; executors need it as well",
    "one that wants TLS": "correct the port in bootstrap_servers, or set security_protocol to SSL or SASL_SSL",
    "fails the TLS handshake": "correct the port in bootstrap_servers, security_protocol or ssl_certfile",
    "one without TLS": "correct the port in bootstrap_servers, or set security_protocol to PLAINTEXT or SASL_PLAINTEXT",
}
"""What to do about a cluster that cannot be reached, by words in the reason."""
_SEE = "docs/troubleshooting.md says more"
_MAY_BE_WEB = (
    "accepts the connection but",
    "answers with something",
    "closes the connection (",
    "closes the connection on",
    "fails the TLS handshake",
)
"""The reasons that a web server may be behind. No other server is asked, because a broker would log the request."""
_ACL_TOOL = "kafka-acls.sh"
_FIRST_ACL = Check(
    None,
    "the first ACL on a resource locks out all users without one, if the brokers have "
    "allow.everyone.if.no.acl.found=true (Amazon MSK's default)",
    "before you execute a command below, see docs/connect.md: the other users may need their ACLs first",
)


def check_cluster(cluster: ClusterConfig) -> Iterator[Check]:
    """Connects and logs in, then tries the requests of a snapshot."""
    checks = _checks(cluster)
    return checks if _is_confluent(cluster) else _with_warning(checks)


def _is_confluent(cluster: ClusterConfig) -> bool:
    """Whether this is Confluent Cloud. There, a user without ACLs has no rights."""
    return ".confluent.cloud:" in cluster.bootstrap_servers[0]


def _with_warning(checks: Iterable[Check]) -> Iterator[Check]:
    """The checks, with a warning before the first one that names a command for ACLs."""
    is_warned = False
    for check in checks:
        if not is_warned and (check.todo or "").startswith(_ACL_TOOL):
            is_warned = True
            yield _FIRST_ACL
        yield check


def _checks(cluster: ClusterConfig) -> Iterator[Check]:
    try:
        options = SourceOptions.parse(cluster.source_options())
    except ClusterError as error:
        yield Check(False, str(error), _SEE)
        return
    try:
        with KafkaClient(options) as client:
            some_answer = yield from _check_brokers(client)
            if not some_answer:
                return
            rights = _Rights(cluster)
            topics = yield from _check_rights(client, rights)
            read = yield from _check_groups(client, rights)
            yield from _check_hidden_topics(client, rights, topics, read)
    except ClusterError as error:
        is_of_brokers = "no token from" not in str(error)
        todo = [todo for words, todo in _TODO.items() if words in str(error) and is_of_brokers]
        if web := [*_web_servers(str(error), options)]:
            todo = [f"correct the port of {', '.join(web)} in bootstrap_servers: a web server listens there"]
        yield Check(False, str(error), "; ".join(todo) or _SEE)
    except Exception as error:  # noqa: BLE001 - one cluster must not keep the others from being checked
        yield Check(False, unexpected(error))


def _web_servers(reasons: str, options: SourceOptions) -> Iterator[str]:
    """The bootstrap servers that are web servers, among those whose reason leaves this open."""
    for server in options.bootstrap_servers:
        if any(f"{server} {reason}" in reasons for reason in _MAY_BE_WEB) and speaks_http(server, options):
            yield server


def _check_brokers(client: KafkaClient) -> Generator[Check, None, bool]:
    """Checks whether each broker answers at its advertised address; returns whether any does."""
    brokers = client.brokers()
    yield Check(True, f"connected to cluster {client.cluster_id()}, which has {counted(len(brokers), 'broker')}")
    answers = client.api_versions(brokers)
    for broker, answer in answers.items():
        if not isinstance(answer, Failure):
            continue
        if why := client.why_unreachable(broker):
            yield Check(False, f"broker {broker} at {brokers[broker]}, its advertised listener, {why}", _SEE)
            continue
        yield Check(
            False,
            f"broker {broker} does not answer at {brokers[broker]}: {answer.error}",
            "it is down, or that address (its advertised listener) does not lead there from here",
        )
    return not all(isinstance(answer, Failure) for answer in answers.values())


def _check_rights(client: KafkaClient, rights: _Rights) -> Generator[Check, None, set[str] | None]:
    """Checks the rights on the cluster and its topics; returns the listed topics, None if they cannot be listed."""
    described = client.ask_any(DescribeClusterRequest(include_cluster_authorized_operations=True))
    # Brokers have this API since Kafka 2.8.
    operations = None if isinstance(described, Failure) or described.error_code else described.authorized_operations
    may_describe = _is_authorized(operations, ACLOperation.DESCRIBE)
    yield Check(
        may_describe or None,
        "DESCRIBE on the cluster: sizes of logs, all groups, hidden topics" + _not_given(may_describe),
        rights.give("Describe", "--cluster") if may_describe is False else None,
    )
    may_read_configs = _is_authorized(operations, ACLOperation.DESCRIBE_CONFIGS)
    yield Check(
        may_read_configs or None,
        "DESCRIBE_CONFIGS on the cluster: how long brokers keep commits" + _not_given(may_read_configs),
        rights.give("DescribeConfigs", "--cluster") if may_read_configs is False else None,
    )
    answer = client.ask_any(
        MetadataRequest(topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=True)
    )
    if isinstance(answer, Failure):
        yield Check(False, f"the topics cannot be listed: {answer.error}")
        return None
    chosen = set(client.options.topics.select(t.name for t in answer.topics))
    topics = {t.name: t.authorized_operations for t in answer.topics if t.name in chosen}
    yield Check(
        bool(topics) or None,
        f"DESCRIBE on topics: {counted(len(topics), 'topic')} that the config selects can be seen",
        None if topics else rights.give("Describe", "--topic '*'"),
    )
    configs = {name: _is_authorized(found, ACLOperation.DESCRIBE_CONFIGS) for name, found in topics.items()}
    refused = [name for name, is_authorized in configs.items() if is_authorized is False]
    is_known = bool(topics) and None not in configs.values()
    yield Check(
        (is_known and not refused) or None,
        "DESCRIBE_CONFIGS on topics: which ones are compacted"
        + (_such_as(refused, len(topics), "topic") if is_known or not topics else _not_given(None)),
        rights.give("DescribeConfigs", "--topic '*'") if refused else None,
    )
    return {t.name for t in answer.topics}


def _check_groups(client: KafkaClient, rights: _Rights) -> Generator[Check, None, set[str]]:
    """Checks whether groups can be described; returns those selected topics that their members read."""
    groups, unlisted, unproven = list_groups(client)
    for error in sorted({u.error for u in unlisted}):
        yield Check(False, f"some groups cannot be listed: {error}")
    if unproven and unproven.error in REFUSALS:
        yield _check_proof(unproven, rights)
    tried = groups[:GROUPS_TRIED]
    answers = read_members(client, tried, client.options.topics.matcher()) if tried else {}
    failed = {name: answer.error for name, answer in answers.items() if isinstance(answer, Failure)}
    seen = f"{counted(len(groups), 'group')} that the config selects can be seen"
    if len(tried) < len(groups):
        seen += f", {len(tried)} of them were tried"
    refused = [name for name, error in failed.items() if error == "GROUP_AUTHORIZATION_FAILED"]
    yield Check(
        (not refused) if groups else None,
        f"DESCRIBE on groups: {seen}{_such_as(refused, len(tried), 'group')}",
        rights.give("Describe", "--group '*'") if refused or not groups else None,
    )
    of_topics = [name for name, error in failed.items() if error == "TOPIC_AUTHORIZATION_FAILED"]
    if of_topics:
        what = f"DESCRIBE on the topics that groups subscribe to{_such_as(of_topics, len(tried), 'group')}"
        yield Check(False, what, rights.give("Describe", "--topic '*'"))
    # Groups that were deleted since they were listed do not count.
    for error in sorted(set(failed.values()) - {*REFUSALS, "GROUP_ID_NOT_FOUND"}):
        names = [name for name, its in failed.items() if its == error]
        yield Check(
            None, f"{counted(len(names), 'group')}, such as {named(names[0])}, could not be described now: {error}"
        )
    return {
        row["topic"] for rows in answers.values() if not isinstance(rows, Failure) for row in rows if row.get("topic")
    }


def _check_proof(unproven: Unproven, rights: _Rights) -> Check:
    """What to do if Kafka does not let laglake prove that its list of groups lacks none."""
    of_groups = f"--group {unproven.group} --resource-pattern-type prefixed"
    resource = of_groups if unproven.group else f"--topic {unproven.topic}"
    return Check(
        None,
        "whether the list of groups lacks some while their coordinators move cannot be proven: "
        f"{unproven.error} for {f'groups {unproven.group}*' if unproven.group else f'topic {unproven.topic}'}",
        rights.give("Describe", resource),
    )


def _check_hidden_topics(
    client: KafkaClient, rights: _Rights, listed: set[str] | None, read: set[str]
) -> Iterator[Check]:
    """Topics that Kafka leaves out of its lists, without an error, because the user may not describe them.

    Their names are in members' assignments, and in brokers' log directories, which need a right on the cluster.
    """
    if listed is None:
        return
    answers = client.ask_each(client.brokers(), lambda: DescribeLogDirsRequest(topics=None))
    logs = [answer for answer in answers.values() if not isinstance(answer, Failure) and answer.results]
    on_disk = {topic.name for answer in logs for result in answer.results for topic in result.topics}
    wanted = sorted((read | set(client.options.topics.select(on_disk))) - listed)
    # If a topic is asked for by name, Kafka gives an error; for a topic that is being deleted, that it does not exist.
    answer = client.metadata(wanted) if wanted else None
    errors = {} if answer is None or isinstance(answer, Failure) else {t.name: t.error_code for t in answer.topics}
    hidden = [name for name, code in errors.items() if error_name(code) == "TOPIC_AUTHORIZATION_FAILED"]
    if hidden:
        what = f"{counted(len(hidden), 'topic')} that the config selects, such as {min(hidden)}, cannot be seen"
        yield Check(False, what, rights.give("Describe", f"--topic {shlex.quote(min(hidden))}"))
    elif len(logs) == len(answers) and not isinstance(answer, Failure):
        yield Check(True, "no topic that the config selects is hidden")
    else:
        what = "whether topics are hidden is not known: not all brokers list what is in their log directories"
        yield Check(None, what, "an administrator sees with kafka-topics.sh --list whether there are more topics")


def check_lake(lake: LakeConfig) -> Check:
    """Writes a file into the lake's folder, or into the nearest parent folder that exists, and reads it back."""
    if lake.root is None:
        return Check(None, f"{lake.catalog}.{lake.schema_name}: only a run shows whether it can be written")
    cannot = f"{lake.root} cannot be written: "
    try:
        folder = lake.local_folder
    except ValueError:
        return Check(False, f"{cannot}it is not a path and not a URI")
    if folder is None:
        return Check(None, f"{lake.root}: only a run shows whether it can be written")
    try:
        written = write_into(folder)
    except OSError as error:
        todo = remedy_of(error) or "give the user of laglake the right to write there"
        return Check(False, f"{cannot}{error.strerror}", f"{todo}, or correct [lake]")
    return Check(
        True, f"{folder} can be written" + ("" if written == folder else f", and will be created in {written}")
    )


class _Rights:
    """How an administrator can grant rights to the user of a cluster."""

    def __init__(self, cluster: ClusterConfig) -> None:
        options = cluster.client.options()
        protocol, mechanism = options.get("security_protocol", "PLAINTEXT"), options.get("sasl_mechanism", "")
        self._is_iam = protocol == "SASL_SSL" and mechanism == "AWS_MSK_IAM"
        self._is_confluent = _is_confluent(cluster)
        self._server = cluster.bootstrap_servers[0]
        # Otherwise the principal is not the name of the login, but comes from a certificate, ticket or account.
        has_name = protocol.startswith("SASL") and mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
        user = options.get("sasl_plain_username") if has_name and not self._is_confluent else None
        self._principal = f"User:{user or 'NAME'}"
        self._config = "" if protocol == "PLAINTEXT" else "--command-config admin.properties "

    def give(self, operation: str, resource: str) -> str:
        """One call of Kafka's own tool; with IAM of Amazon MSK, the action that the policy must allow.

        In Confluent Cloud, one right cannot be given.
        """
        if self._is_iam:
            kind, *_ = resource.removeprefix("--").split()
            suffix = "DynamicConfiguration" if operation == "DescribeConfigs" else ""
            return f"the IAM policy must allow kafka-cluster:Describe{kind.capitalize()}{suffix}, see docs/connect.md"
        if self._is_confluent and (operation, resource) == ("DescribeConfigs", "--cluster"):
            return "nothing to do: Confluent Cloud has no ACL for this right"
        return (
            f"{_ACL_TOOL} --bootstrap-server {self._server} {self._config}--add "
            f"--allow-principal {shlex.quote(self._principal)} --operation {operation} {resource}"
        )


def _is_authorized(operations: Set[int] | None, wanted: ACLOperation) -> bool | None:
    """Whether an operation is authorized according to Kafka (KIP-430); None if Kafka does not say."""
    return None if operations is None else wanted in operations


def _not_given(is_authorized: bool | None) -> str:
    return {True: "", False: "; not given", None: "; the brokers do not say"}[is_authorized]


def _such_as(names: Sequence[str], among: int, what: str) -> str:
    return f"; refused for {len(names)} of {counted(among, what)}, such as {named(min(names))}" if names else ""
