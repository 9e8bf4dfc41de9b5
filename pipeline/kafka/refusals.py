"""Why a Kafka listener that answers cannot be used, in words that say what to change.

kafka-python's own messages are not shown: some repeat a URL with a password. What a broker says about a login is not
specific either, so that nobody learns whether a user exists.
"""

from __future__ import annotations

import kafka.errors as kafka_errors

from pipeline.common.errors import ClusterError
from pipeline.kafka.options import SourceOptions
from pipeline.kafka.probe import find_listener

_REFUSALS = (
    kafka_errors.IllegalSaslStateError,
    kafka_errors.KafkaConnectionError,
    kafka_errors.SaslAuthenticationFailedError,
    kafka_errors.UnsupportedSaslMechanismError,
)
_CERTIFICATES = {
    "certificate has expired": "has expired: renew it at the broker, if the clock of this machine is right",
    "certificate is not yet valid": "is not yet valid: check the clocks of this machine and of the broker",
    "certificate is not valid for": "is for other hosts: use the names that the certificate has in bootstrap_servers "
    "and in the brokers' advertised.listeners, or renew it",
    "": "is not trusted: set ssl_cafile to the certificate of the authority that has signed it",
}
"""What is wrong with the certificate of a server, by OpenSSL's words, the first that it says."""
_LOGINS = {
    "PLAIN": "sasl_plain_username and sasl_plain_password",
    "SCRAM-SHA-256": "sasl_plain_username and sasl_plain_password, and that the user has a password for SCRAM-SHA-256",
    "SCRAM-SHA-512": "sasl_plain_username and sasl_plain_password, and that the user has a password for SCRAM-SHA-512",
    "OAUTHBEARER": "sasl_oauthbearer_scope and sasl_oauthbearer_extensions, and that the brokers trust the token's "
    "issuer and expect its audience",
    "AWS_MSK_IAM": "the AWS identity and the region, and that its policy allows kafka-cluster:Connect",
    "GSSAPI": "the ticket, sasl_kerberos_service_name, and the name of the broker",
}
"""What to check if the broker rejects a login, by mechanism."""


def why_unusable(error: Exception, server: str, options: SourceOptions) -> str:
    """Why kafka-python cannot use a server that answers as Kafka, by the error with which it has failed."""
    if isinstance(error, ClusterError):  # no token, or no credentials
        return f"cannot be used: {error}"
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        what = next(words for said, words in _CERTIFICATES.items() if said in str(error))
        return f"presents a TLS certificate that {what}"
    if isinstance(error, ValueError) and "proxy_url" in options.client:
        return "cannot be used: proxy_url must be the URL of a proxy, such as http://host:port or socks5://host:port"
    if isinstance(error, kafka_errors.RequestTimedOutError | kafka_errors.KafkaTimeoutError):
        return "answers, but not in time: it is too busy, or limits.connect_timeout is too short"
    if not isinstance(error, _REFUSALS):
        return f"answers, but cannot be used: {type(error).__name__}"
    # A broker sends a reason and closes the connection. If both arrive at once, kafka-python sees only the latter.
    if "proxy_url" in options.client:  # only the proxy can reach the server
        return _why_refused_through_proxy(error, options)
    return _why_refused(error, server, options)


def _why_refused_through_proxy(error: Exception, options: SourceOptions) -> str:
    if not options.client.get("security_protocol", "").startswith("SASL"):
        return "cannot be reached through the proxy, or closes the connection: check security_protocol"
    if isinstance(error, kafka_errors.KafkaConnectionError):
        return "cannot be reached through the proxy, or rejects the login: check security_protocol and the login"
    return _why_rejected(options)


def _why_refused(error: Exception, server: str, options: SourceOptions) -> str:
    """What differs between the options and what the listener wants, else that it rejects the login."""
    listener = find_listener(server, options)
    if listener is None and isinstance(error, kafka_errors.KafkaConnectionError):
        return "closes the connection: check security_protocol and the login, unless it is restarting or overloaded"
    protocol, mechanism = options.client.get("security_protocol", "PLAINTEXT"), options.client.get("sasl_mechanism")
    if listener and listener.protocol != protocol:
        return listener.advice()
    if listener and listener.mechanisms and mechanism not in listener.mechanisms:
        return f"does not offer {mechanism}: set sasl_mechanism to {' or '.join(listener.mechanisms)}"
    return _why_rejected(options) if protocol.startswith("SASL") else "closes the connection: it may be restarting"


def _why_rejected(options: SourceOptions) -> str:
    return f"rejects the login: check {_LOGINS[options.client['sasl_mechanism']]}"
