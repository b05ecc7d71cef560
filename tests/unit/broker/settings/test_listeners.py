"""Settings of listeners: their meaning, and the values that are refused as in Apache Kafka."""

from __future__ import annotations

import pytest

from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.listeners import (
    OWN_SETTINGS,
    OWN_SETTINGS_PREFIXES,
    ListenerConfig,
)
from barnabas.broker.settings.rows_broker import BROKER_SETTINGS
from barnabas.broker.settings.setting import ConfigError

JAAS = 'some.LoginModule required user_alice="her-secret";'


def config(properties: dict[str, str] | None = None, **settings: str) -> BrokerConfig:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return BrokerConfig.from_properties((properties or {}) | named)


def sasl(**settings: str) -> BrokerConfig:
    return config(
        {"listeners": "CLIENTS://:9092",
         "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT"},
        **settings,
    )  # fmt: skip


def only(taken: BrokerConfig) -> ListenerConfig:
    (listener,) = taken.listeners
    return listener


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PLAINTEXT://:9092", "PLAINTEXT://0.0.0.0:9092"),
        ("PLAINTEXT://[::1]:9092", "PLAINTEXT://[::1]:9092"),
        ("plaintext://localhost:0", "PLAINTEXT://localhost:0"),
        ("PLAINTEXT://a.b:65535,CONTROLLER://:9093", "PLAINTEXT://a.b:65535"),
        ("unix:///run/b.sock", "unix:///run/b.sock"),
    ],
)
def test_listeners_that_may_be(text: str, expected: str) -> None:
    assert str(only(config(listeners=text)).endpoint) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "name one"),
        ("9092", "NAME://ADDRESS:PORT"),
        ("localhost:9092", "NAME://ADDRESS:PORT"),
        ("PLAINTEXT://h", "NAME://ADDRESS:PORT"),
        ("PLAINTEXT://h:x", "NAME://ADDRESS:PORT"),
        ("PLAINTEXT://h:65536", "NAME://ADDRESS:PORT"),
        ("PLAINTEXT://h:²", "NAME://ADDRESS:PORT"),
        ("://h:1", "NAME://ADDRESS:PORT"),
        ("unix://run/b.sock", "unix:///PATH"),
        ("CONTROLLER://:9093", "name one"),
        # Apache Kafka's KafkaConfig also refuses the following values.
        ("PLAINTEXT://a:1,plaintext://b:2", "two are called PLAINTEXT"),
        ("PLAINTEXT://a:1,SSL://b:1", "both have the port 1"),
        ("PLAINTEXT://127.0.0.1:1,SSL://127.0.0.2:1", "both have the port 1"),
        ("KERBEROS://:9092", "the protocol of KERBEROS is missing"),
    ],
)
def test_invalid_listeners_are_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match="listeners") as error:
        config(listeners=text)
    assert words in str(error.value)


def test_an_ipv4_and_an_ipv6_listener_may_have_the_same_port() -> None:
    taken = config(
        listeners="FOUR://127.0.0.1:1,SIX://[::1]:1",
        listener_security_protocol_map="FOUR:PLAINTEXT,SIX:PLAINTEXT",
    )
    assert [listener.endpoint.host for listener in taken.listeners] == ["127.0.0.1", "::1"]


def test_the_port_ranges_of_several_brokers_may_not_overlap() -> None:
    listeners = "PLAINTEXT://:9092,SSL://:{}"
    with pytest.raises(ConfigError, match=r"both have the port 9094 .each has 3 ports"):
        config(listeners=listeners.format(9094), barnabas_brokers="3")
    config(listeners=listeners.format(9095), barnabas_brokers="3")
    with pytest.raises(ConfigError, match="cannot share"):
        config(listeners="unix:///b.sock", barnabas_brokers="3")


def test_the_protocol_of_a_listener_comes_from_the_protocol_map() -> None:
    properties = {"listeners": "EXTERNAL://:9092"}
    protocols = {"PLAINTEXT": False, "SSL": True, "SASL_PLAINTEXT": False, "SASL_SSL": True}
    for protocol, has_tls in protocols.items():
        mapped = {**properties, "listener.security.protocol.map": f"A:SSL, external:{protocol}"}
        listener = only(BrokerConfig.from_properties(mapped))
        assert (listener.security_protocol, listener.has_tls) == (protocol, has_tls)
        assert listener.has_sasl == protocol.startswith("SASL")


@pytest.mark.parametrize("text", ["A", ":SSL", "A:", "A:KERBEROS", "A:SSL,a:PLAINTEXT"])
def test_maps_that_may_not_be(text: str) -> None:
    with pytest.raises(ConfigError, match=r"listener\.security\.protocol\.map="):
        config(listener_security_protocol_map=f"PLAINTEXT:PLAINTEXT,{text}")


def test_listeners_in_controller_listener_names_are_not_opened() -> None:
    listener = only(
        config(
            listeners="A://:1,B://:2",
            controller_listener_names="A",
            listener_security_protocol_map="A:PLAINTEXT,B:PLAINTEXT",
        )
    )
    assert str(listener.endpoint) == "B://0.0.0.0:2"


def test_each_listener_has_its_own_advertised_address() -> None:
    taken = config(
        listeners="PLAINTEXT://:1,SSL://:2,unix:///b.sock",
        advertised_listeners="ssl://b.example:443,UNIX://proxy:9092",
    )
    assert [listener.advertised for listener in taken.listeners] == [
        None,
        ("b.example", 443),
        ("proxy", 9092),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SSL://b:1", "there is no listener SSL"),
        ("PLAINTEXT://0.0.0.0:9092", "no client can connect"),
        ("PLAINTEXT://[::]:9092", "no client can connect"),
        ("PLAINTEXT://b", "NAME://ADDRESS:PORT"),
        ("PLAINTEXT://b:1,PLAINTEXT://c:1", "two are called PLAINTEXT"),
    ],
)
def test_invalid_advertised_listeners_are_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=r"advertised\.listeners=") as error:
        config(advertised_listeners=text)
    assert words in str(error.value)


def test_the_inter_broker_listener_name_must_be_that_of_a_listener() -> None:
    config(inter_broker_listener_name="plaintext")
    with pytest.raises(ConfigError, match=r"inter\.broker\.listener\.name=OTHER"):
        config(inter_broker_listener_name="OTHER")


# --- settings of one listener -------------------------------------------------------------------


def test_a_listeners_own_certificate_has_precedence_over_the_common_one() -> None:
    taken = config(
        listeners="SSL://:9092,SASL_SSL://:9093",
        ssl_keystore_location="/all.pem",
        ssl_client_auth="required",
        **{"listener.name.ssl.ssl.keystore.location": "/own.pem"},
    )
    own, other = (listener.tls_settings(taken.explicit) for listener in taken.listeners)
    assert own == {"ssl.keystore.location": "/own.pem", "ssl.client.auth": "required"}
    # KIP-684: on a listener with SASL only its own ssl.client.auth applies
    assert other == {"ssl.keystore.location": "/all.pem"}
    assert [listener["ssl.client.auth"] for listener in taken.listeners] == ["required", "none"]


OTHER_VALUES = {
    "sasl.enabled.mechanisms": "PLAIN",
    "ssl.enabled.protocols": "TLSv1.3",
    "ssl.keystore.type": "PEM",
    "ssl.truststore.type": "PEM",
    "ssl.client.auth": "required",
    "ssl.principal.mapping.rules": "RULE:a/b/,DEFAULT",
}


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in BROKER_SETTINGS
        if name in OWN_SETTINGS or name.startswith(OWN_SETTINGS_PREFIXES)
    ],
)
def test_what_holds_where_a_listener_has_no_setting_of_its_own(name: str) -> None:
    text = OTHER_VALUES.get(name, "77")
    value = BROKER_SETTINGS[name].parse(text)
    taken = config(listeners="SSL://:9092,SASL_SSL://:9093", **{name.replace(".", "_"): text})
    of_ssl, of_sasl = taken.listeners
    assert of_ssl[name] == value
    assert of_sasl[name] == ("none" if name == "ssl.client.auth" else value)
    assert not any(listener.limits_connections for listener in taken.listeners)
    own = {f"listener.name.sasl_ssl.{name}": text}
    of_ssl, of_sasl = config(own, listeners="SSL://:9092,SASL_SSL://:9093").listeners
    assert of_ssl[name] == BROKER_SETTINGS[name].default
    assert of_sasl[name] == value


@pytest.mark.parametrize(
    ("name", "mechanism"), [("clients", "plain"), ("CLIENTS", "PLAIN"), ("Clients", "Plain")]
)
def test_a_listeners_own_sasl_settings_have_precedence_over_the_common_ones(
    name: str, mechanism: str
) -> None:
    """The names of the listener and of the mechanism may be written in lower or upper case."""
    listener = only(
        sasl(
            sasl_enabled_mechanisms="SCRAM-SHA-512",
            connections_max_reauth_ms="5000",
            **{
                f"listener.name.{name}.sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN",
                f"listener.name.{name}.{mechanism}.connections.max.reauth.ms": "7000",
                f"listener.name.{name}.{mechanism}.sasl.jaas.config": JAAS,
            },
        )
    )
    assert listener.sasl_mechanisms == ("PLAIN", "SCRAM-SHA-256")
    assert listener.max_reauth_ms["PLAIN"] == 7000
    assert listener.max_reauth_ms["SCRAM-SHA-256"] == 5000
    assert listener.plain_passwords


def test_users_of_plain_are_those_of_the_listeners_jaas_text() -> None:
    taken = config(
        {"listener.security.protocol.map": "A:SASL_PLAINTEXT,B:SASL_PLAINTEXT"},
        listeners="A://:1,B://:2",
        **{"listener.name.a.plain.sasl.jaas.config": JAAS},
    )
    assert [listener.plain_passwords for listener in taken.listeners] == [
        {"alice": "her-secret"},
        {},
    ]
    assert taken.explicit.keys() == {"listeners", "listener.security.protocol.map"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("listener.name.clients.plain.sasl.jaas.config", "user_alice=her-secret"),
        ("listener.name.clients.plain.sasl.server.callback.handler.class", "x"),
        ("listener.name.clients.gssapi.sasl.jaas.config", JAAS),
        ("listener.name.clients.sasl.enabled.mechanisms", ""),
        ("listener.name.clients.connections.max.reauth.ms", "never"),
    ],
)
def test_invalid_settings_of_a_listener_are_refused_without_showing_a_password(
    name: str, value: str
) -> None:
    with pytest.raises(ConfigError) as error:
        sasl(**{name: value})
    assert "her-secret" not in str(error.value)


def test_settings_of_an_unknown_listener_cause_a_warning_only() -> None:
    taken = sasl(**{"listener.name.other.plain.sasl.jaas.config": JAAS})
    assert only(taken).plain_passwords == {}
    (warning,) = taken.warnings
    assert "no listener has that name" in warning


def test_rules_of_principals_are_read_at_the_start() -> None:
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules"):
        config(listeners="SSL://:9092", ssl_principal_mapping_rules="CN")
    listener = only(
        config(listeners="SSL://:9092", ssl_principal_mapping_rules="RULE:CN=(.*)/$1/U")
    )
    assert listener.tls_principal({"subject": ((("commonName", "a"),),)}) == "User:A"
