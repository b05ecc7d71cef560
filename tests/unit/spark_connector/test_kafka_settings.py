"""The settings of Java clients: values that such a client refuses, and unknown names."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")

from barnabas.spark_connector import kafka_settings
from barnabas.spark_connector.kafka_settings import (
    BOOLEAN,
    CONSUMER,
    KINDS,
    PRODUCER,
    TEXT,
    wrong_value,
)
from barnabas.spark_connector.option_error import OptionError
from barnabas.spark_connector.read.options import SourceOptions, parse_source_options
from barnabas.spark_connector.write.sink_options import SinkOptions, parse_sink_options

REQUIRED = {"kafka.bootstrap.servers": "one:9092, [::1]:9093", "subscribe": "a"}


def parse(**options: str) -> SourceOptions:
    return parse_source_options(
        REQUIRED | {name.replace("__", "."): value for name, value in options.items()}
    )


def test_a_name_that_no_client_knows_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    kafka_settings._warn.cache_clear()
    for _ in range(2):
        parse(
            kafka__max__pol__records="7",
            kafka__xyzzy="1",
            kafka__linger__ms="5",
        )
    assert [record.message for record in caplog.records] == [
        "barnabas: option kafka.max.pol.records is no setting of a Kafka client: did you mean "
        "kafka.max.poll.records?",
        "barnabas: option kafka.xyzzy is no setting of a Kafka client: it is ignored",
        "barnabas: option kafka.linger.ms has no effect: all rows of a task are available at "
        "once: no batch waits for more",
    ]


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("max.poll.records", "500", ""),
        ("max.poll.records", " 500 ", ""),
        ("max.poll.records", "-2147483648", ""),
        ("max.poll.records", "2147483648", "a whole number of 32 bits"),
        ("max.poll.records", "abc", "a whole number of 32 bits"),
        ("linger.ms", "2147483648", ""),
        ("linger.ms", str(1 << 63), "a whole number of 64 bits"),
        ("check.crcs", "TRUE", ""),
        ("check.crcs", "yes", "true or false"),
        ("group.id", "anything", ""),
        ("of.nobody", "anything", ""),
    ],
)
def test_values_are_those_that_a_java_client_takes(name: str, value: str, accepted: str) -> None:
    """The rules are those of Apache Kafka's ConfigDef.parseType."""
    assert wrong_value(name, value) == accepted


PROTECTED = {"kafka.security.protocol": "SASL_SSL"}
LOGIN = {
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.username": "me",
    "kafka.sasl.password": "secret",
}
NAMES = "kafka.sasl.oauthbearer.client.credentials.client."
BEARER = {
    "kafka.sasl.mechanism": "OAUTHBEARER",
    "kafka.sasl.oauthbearer.token.endpoint.url": "https://a/t",
    NAMES + "id": "me",
    NAMES + "secret": "secret",
}
# Valid values, other than the default, for settings that do not accept the general value of their
# type.
VALUES = {
    "security.protocol": "SSL",
    "bootstrap.servers": "another:1",
    "isolation.level": "read_uncommitted",
    "compression.type": "gzip",
    "ssl.protocol": "TLSv1.2",
    "ssl.enabled.protocols": "TLSv1.2",
    "ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "ssl.endpoint.identification.algorithm": "",
    "ssl.truststore.type": "PKCS12",
    "ssl.keystore.type": "PKCS12",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.oauthbearer.token.endpoint.url": "https://another/t",
    "partitioner.ignore.keys": "true",
    "transaction.two.phase.commit.enable": "true",
    "max.in.flight.requests.per.connection": "1",
    "batch.size": "2048",
    "max.request.size": "2048",
    "fetch.max.bytes": "7",
    "sasl.mechanisms": "SCRAM-SHA-512",
    "sasl.oauthbearer.header.urlencode": "true",
    "sasl.jaas.config": 'a.PlainLoginModule required username="you" password="x";',
}
# Further options that make a setting valid. The run without the setting has them as well.
BESIDE = {
    "ssl.key.location": {"kafka.ssl.certificate.location": "/c"},
    "ssl.keystore.certificate.chain": {"kafka.ssl.keystore.key": "k"},
    "ssl.keystore.key": {"kafka.ssl.keystore.certificate.chain": "c"},
    "ssl.certificate.pem": {"kafka.ssl.key.pem": "k"},
    "ssl.key.pem": {"kafka.ssl.certificate.pem": "c"},
}
TOGETHER = {
    "ssl.keystore.certificate.chain": "kafka.ssl.keystore.key",
    "ssl.keystore.key": "kafka.ssl.keystore.certificate.chain",
    "ssl.certificate.pem": "kafka.ssl.key.pem",
    "ssl.key.pem": "kafka.ssl.certificate.pem",
}


def parsed(client: str, options: dict[str, str]) -> SourceOptions | SinkOptions:
    if client == CONSUMER:
        return parse_source_options({"subscribe": "a", **options}, streaming=True)
    return parse_sink_options({"topic": "a", **options}, streaming=False)


@pytest.mark.parametrize("client", [CONSUMER, PRODUCER])
@pytest.mark.parametrize("name", sorted(KINDS))
def test_no_setting_is_ignored_without_a_word(
    caplog: pytest.LogCaptureFixture, name: str, client: str
) -> None:
    """A setting with a value other than its default must change the behaviour, be refused, or cause
    a warning that the setting has no effect.
    """
    value = VALUES.get(name, {BOOLEAN: "false", TEXT: "other"}.get(KINDS[name], "7"))
    login = BEARER if "oauthbearer" in name or "login.re" in name else LOGIN
    if name == "sasl.mechanisms":
        login = {key: text for key, text in LOGIN.items() if key != "kafka.sasl.mechanism"}
    before = {"kafka.bootstrap.servers": "one:1", **PROTECTED, **login, **BESIDE.get(name, {})}
    kafka_settings._warn.cache_clear()
    try:
        after = parsed(client, before | {f"kafka.{name}": value})
    except OptionError as error:
        assert f"kafka.{name}" in str(error)
        return
    if any(f"option kafka.{name} has no effect: " in record.message for record in caplog.records):
        return
    base = {key: text for key, text in before.items() if key != TOGETHER.get(name)}
    if name == "sasl.mechanisms":
        base |= {"kafka.sasl.mechanism": "PLAIN"}
    assert after != parsed(client, base)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"kafka.client.rack": "eu-1a"},
            "client.rack is not supported: records come from the le",
        ),
        ({"kafka.config.providers": "file"}, "values are not resolved"),
        ({"kafka.config.providers.file.class": "x"}, "values are not resolved"),
        ({"kafka.ssl.truststore.locaton": "/x"}, "did you mean kafka.ssl.truststore.location?"),
        ({"kafka.ssl.provider": "BCFIPS"}, "Java classes are not supported"),
        ({"kafka.exclude.internal.topics": "false"}, "name them with subscribe"),
        ({"kafka.client.dns.lookup": "resolve_canonical_bootstrap_servers_only"}, "are compared"),
    ],
)
def test_what_cannot_be_honoured_is_refused_with_the_reason(
    options: dict[str, str], says: str
) -> None:
    with pytest.raises(OptionError) as caught:
        parsed(CONSUMER, {"kafka.bootstrap.servers": "one:1", **options})
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"kafka.client.dns.lookup": "use_all_dns_ips"},
        {"kafka.client.rack": ""},
        {"kafka.exclude.internal.topics": "true"},
        {"kafka.metric.reporters": ""},
    ],
)
def test_a_value_that_wishes_for_nothing_else_is_taken(
    caplog: pytest.LogCaptureFixture, options: dict[str, str]
) -> None:
    parsed(CONSUMER, {"kafka.bootstrap.servers": "one:1", **options})
    assert not caplog.records


def test_settings_of_the_other_client_are_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """Programs often use the same options for their source and their sink."""
    kafka_settings._warn.cache_clear()
    shared = {"kafka.bootstrap.servers": "one:1", "kafka.acks": "all", "kafka.fetch.min.bytes": "9"}
    for client in (CONSUMER, PRODUCER):
        parsed(client, shared)
    assert [record.message for record in caplog.records] == [
        "barnabas: option kafka.acks has no effect: it is not one of a consumer",
        "barnabas: option kafka.fetch.min.bytes has no effect: it is not one of a producer",
    ]
