"""The settings of Java consumers and producers: the valid names and values of `kafka.*` options,
and whether each is honoured, rejected, or has no effect.

A value that a Java client would reject is rejected. Some settings have an effect that this
connector does not implement. Such a setting is rejected with the reason if ignoring it could change
the data that are read or written, their confidentiality, or their cost. Otherwise there is one
warning with the reason. No setting is therefore ignored silently. An unknown name causes a warning
with the most similar name, and is rejected if it begins with `ssl.` or `sasl.`.

Source: the documentation of Apache Kafka 4.1, "Consumer Configs" and "Producer Configs".
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from barnabas.client.notices import logger

CONSUMER, PRODUCER = "consumer", "producer"
TEXT, BOOLEAN, INT, LONG = (
    "a text",
    "true or false",
    "a whole number of 32 bits",
    "a whole number of 64 bits",
)
_BITS = {INT: 31, LONG: 63}
_NAMES = {
    TEXT: """
        acks auto.offset.reset bootstrap.servers client.dns.lookup client.id client.rack
        compression.type config.providers group.id group.instance.id group.protocol
        group.remote.assignor interceptor.classes isolation.level key.deserializer
        key.serializer metadata.recovery.strategy metric.reporters metrics.recording.level
        partition.assignment.strategy partitioner.class security.protocol security.providers
        share.acknowledgement.mode transactional.id value.deserializer value.serializer
        ssl.ca.location ssl.ca.pem ssl.certificate.location ssl.certificate.pem
        ssl.cipher.suites ssl.enabled.protocols ssl.endpoint.identification.algorithm
        ssl.engine.factory.class ssl.key.location ssl.key.password ssl.key.pem
        ssl.keymanager.algorithm ssl.keystore.certificate.chain ssl.keystore.key
        ssl.keystore.location ssl.keystore.password ssl.keystore.type ssl.protocol ssl.provider
        ssl.secure.random.implementation ssl.trustmanager.algorithm ssl.truststore.certificates
        ssl.truststore.location ssl.truststore.password ssl.truststore.type
        sasl.client.callback.handler.class sasl.jaas.config sasl.kerberos.kinit.cmd
        sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter
        sasl.kerberos.ticket.renew.window.factor sasl.login.callback.handler.class
        sasl.login.class sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
        sasl.mechanism sasl.mechanisms sasl.username sasl.password
        sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
        sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.sub
        sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file
        sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file
        sasl.oauthbearer.client.credentials.client.id
        sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.expected.audience
        sasl.oauthbearer.expected.issuer sasl.oauthbearer.jwks.endpoint.url
        sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class
        sasl.oauthbearer.scope sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
        sasl.oauthbearer.token.endpoint.url
    """,
    BOOLEAN: """
        allow.auto.create.topics auto.include.jmx.reporter check.crcs enable.auto.commit
        enable.idempotence enable.metrics.push exclude.internal.topics
        partitioner.adaptive.partitioning.enable partitioner.ignore.keys
        sasl.oauthbearer.header.urlencode transaction.two.phase.commit.enable
    """,
    INT: """
        auto.commit.interval.ms batch.size compression.gzip.level compression.lz4.level
        compression.zstd.level default.api.timeout.ms delivery.timeout.ms fetch.max.bytes
        fetch.max.wait.ms fetch.min.bytes heartbeat.interval.ms
        max.in.flight.requests.per.connection max.partition.fetch.bytes max.poll.interval.ms
        max.poll.records max.request.size metrics.num.samples receive.buffer.bytes
        request.timeout.ms retries sasl.login.connect.timeout.ms sasl.login.read.timeout.ms
        sasl.oauthbearer.clock.skew.seconds send.buffer.bytes session.timeout.ms
        transaction.timeout.ms
    """,
    LONG: """
        buffer.memory connections.max.idle.ms linger.ms max.block.ms metadata.max.age.ms
        metadata.max.idle.ms metadata.recovery.rebootstrap.trigger.ms
        metrics.sample.window.ms partitioner.availability.timeout.ms
        reconnect.backoff.max.ms reconnect.backoff.ms retry.backoff.max.ms retry.backoff.ms
        sasl.kerberos.min.time.before.relogin sasl.login.refresh.buffer.seconds
        sasl.login.refresh.min.period.seconds sasl.login.retry.backoff.max.ms
        sasl.login.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.refresh.ms
        sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
        sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
        socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
    """,
}
KINDS = {name: kind for kind, names in _NAMES.items() for name in names.split()}

# The settings that have no effect here. The keys are the reasons, which the warnings contain.
_WITHOUT_EFFECT = {
    "a query is no member of a consumer group": """
        group.id group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms
        max.poll.interval.ms max.poll.records partition.assignment.strategy session.timeout.ms
        share.acknowledgement.mode
    """,
    "no offsets are committed by time": "auto.commit.interval.ms",
    "no metrics of clients are kept or sent": """
        auto.include.jmx.reporter enable.metrics.push metrics.num.samples
        metrics.recording.level metrics.sample.window.ms
    """,
    "a read creates no topics, and a write creates them as a producer does": """
        allow.auto.create.topics
    """,
    "each attempt to connect has socket.connection.setup.timeout.ms, and the pause between two is "
    "retry.backoff.ms": """
        reconnect.backoff.max.ms reconnect.backoff.ms socket.connection.setup.timeout.max.ms
    """,
    "a task closes its connections at its end": "connections.max.idle.ms",
    "the client asks bootstrap.servers again when no other broker answers": """
        metadata.max.idle.ms metadata.recovery.rebootstrap.trigger.ms
        metadata.recovery.strategy
    """,
    "all rows of a task are available at once: no batch waits for more": """
        buffer.memory linger.ms max.block.ms
    """,
    "rows without a key are spread evenly": """
        partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms
    """,
    "kafka.delivery.timeout.ms limits how long failures are retried": "retries",
    "OpenSSL verifies certificates, not Java": """
        ssl.keymanager.algorithm ssl.trustmanager.algorithm
    """,
    "a new token is requested shortly before the former one expires": """
        sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds
        sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
    """,
    "sasl.login.read.timeout.ms applies to connecting, too": "sasl.login.connect.timeout.ms",
    "the broker verifies tokens": """
        sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience
        sasl.oauthbearer.expected.issuer sasl.oauthbearer.jwks.endpoint.refresh.ms
        sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
        sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
        sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope.claim.name
        sasl.oauthbearer.sub.claim.name
    """,
    "Kerberos is not supported": """
        sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.service.name
        sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
    """,
}
WITHOUT_EFFECT = MappingProxyType(
    {name: why for why, names in _WITHOUT_EFFECT.items() for name in names.split()}
)
# The settings that only one of the two clients has. The other client ignores them, since source and
# sink often share a set of options.
_OF_ONE_CLIENT = {
    CONSUMER: """
        allow.auto.create.topics auto.offset.reset check.crcs enable.auto.commit
        exclude.internal.topics fetch.max.bytes fetch.max.wait.ms fetch.min.bytes
        isolation.level key.deserializer max.partition.fetch.bytes metadata.max.age.ms
        value.deserializer
    """,
    PRODUCER: """
        acks batch.size compression.gzip.level compression.lz4.level compression.type
        compression.zstd.level delivery.timeout.ms enable.idempotence key.serializer
        max.in.flight.requests.per.connection max.request.size partitioner.class
        partitioner.ignore.keys retries transaction.timeout.ms
        transaction.two.phase.commit.enable transactional.id value.serializer
    """,
}
OF_ONE_CLIENT = {client: frozenset(names.split()) for client, names in _OF_ONE_CLIENT.items()}
_JAVA = "Java classes are not supported"
_ASSERTION = (
    "signed assertions are not supported; oauthTokenProvider names a function that gives the token"
)
# For each setting, the accepted values (besides an empty text), and why other values are rejected.
_REFUSED: dict[str, tuple[tuple[str, ...], str]] = {
    "client.dns.lookup": (
        ("use_all_dns_ips",),
        "all addresses of a name are tried, and certificates are compared with that name",
    ),
    "client.rack": (
        (),
        "records come from the leaders of partitions, not from replicas nearby; leave it out",
    ),
    "config.providers": ((), "values are not resolved; read secrets in your program"),
    "exclude.internal.topics": (
        ("true",),
        "subscribePattern never matches internal topics; name them with subscribe",
    ),
    "metric.reporters": ((), _JAVA),
    "partitioner.ignore.keys": (
        ("false",),
        "a row's partition follows from its key; drop the column key, or set the column partition",
    ),
    "security.providers": ((), _JAVA),
    "ssl.engine.factory.class": ((), _JAVA),
    "ssl.provider": ((), _JAVA),
    "ssl.secure.random.implementation": ((), _JAVA),
    "transaction.two.phase.commit.enable": (
        ("false",),
        "the sink uses it automatically if brokers support it (the option sinkMode)",
    ),
    "sasl.client.callback.handler.class": ((), _JAVA),
    "sasl.login.class": ((), _JAVA),
    **{name: ((), _ASSERTION) for name in KINDS if name.startswith("sasl.oauthbearer.assertion.")},
}
SECURE = ("ssl.", "sasl.")


def wrong_value(name: str, text: str) -> str:
    """Return an error text if a setting does not accept the value.

    The text is empty if the value is accepted, or if the name (without `kafka.`) is unknown.
    """
    kind = KINDS.get(name, TEXT)
    if kind == BOOLEAN:
        return "" if text.strip().lower() in ("true", "false") else kind
    if kind in _BITS:
        try:
            number = int(text.strip())
        except ValueError:
            return kind
        return "" if -(1 << _BITS[kind]) <= number < 1 << _BITS[kind] else kind
    return ""


def refusal(name: str, text: str, client: str) -> str:
    """Return why the value of a setting has to be rejected.

    The text is empty if the value is honoured, or if the setting has no effect.
    """
    if _is_of_the_other(name, client):
        return ""
    if name.startswith("config.providers."):
        name = "config.providers"
    if name in _REFUSED:
        harmless, why = _REFUSED[name]
        return "" if text.strip().lower() in ("", *harmless) else why
    if name == "retries" and client == PRODUCER and int(text) == 0:
        return "a transaction needs retries; kafka.delivery.timeout.ms bounds them"
    if name.startswith(SECURE) and name not in KINDS:
        return f"no client has this setting{_nearest(name)}"
    return ""


def _is_of_the_other(name: str, client: str) -> bool:
    return name in OF_ONE_CLIENT[PRODUCER if client == CONSUMER else CONSUMER]


def _nearest(name: str) -> str:
    near = difflib.get_close_matches(name, KINDS, n=1, cutoff=0.6)
    return f": did you mean kafka.{near[0]}?" if near else ""


def warn_of_unused(settings: Mapping[str, str], client: str) -> None:
    """Warn of settings without effect, and of names that no Java client has.

    There is one warning for each name in a process.
    """
    for name in settings:
        if name not in KINDS:
            _warn(name, f"is no setting of a Kafka client{_nearest(name) or ': it is ignored'}")
        elif _is_of_the_other(name, client):
            _warn(name, f"has no effect: it is not one of a {client}")
        elif name in WITHOUT_EFFECT:
            _warn(name, f"has no effect: {WITHOUT_EFFECT[name]}")


@lru_cache(maxsize=1000)
def _warn(name: str, why: str) -> None:
    logger.warning("barnabas: option kafka.%s %s", name, why)
