"""The settings of a pair: error messages that say what to do, and the settings that are reported to
the other node.
"""

from __future__ import annotations

import pytest

from barnabas.broker.settings.config import BrokerConfig
from barnabas.replication.lease_engine import EtcdEngine
from barnabas.replication.lease_exchange import ACCOUNT, EngineSettings
from barnabas.replication.lease_record import NodeAddresses, addresses_for_clients
from barnabas.replication.rim import pair_member
from barnabas.replication.rim.pair_member import PairSettingsError, addresses_of, engine_of

RIGHT = {
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:9092,OTHER://0.0.0.0:9094",
    "advertised.listeners": "OTHER://example.com:19094",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "barnabas.replication.port": "9093",
    "barnabas.lease.url": "etcd://127.0.0.1:2379/pair",
}


def config(**changes: str | None) -> BrokerConfig:
    wanted = RIGHT | {name.replace("_", "."): value for name, value in changes.items()}
    return BrokerConfig.from_properties({name: text for name, text in wanted.items() if text})


def test_a_node_publishes_its_advertised_addresses() -> None:
    listeners = {"PLAINTEXT": "127.0.0.1:9092", "OTHER": "example.com:19094"}
    assert addresses_of(config()) == NodeAddresses("127.0.0.1:9093", listeners)
    published = config(barnabas_replication_advertised="db.example.com:29093")
    assert addresses_of(published).replication == "db.example.com:29093"
    last = config(barnabas_replication_advertised="db.example.com:65535")
    assert addresses_of(last).replication == "db.example.com:65535"
    assert addresses_of(config(node_id=None, broker_id="1")).listeners == listeners
    local = config(listeners="PLAINTEXT://127.0.0.1:9092,unix:///b.sock", advertised_listeners=None)
    assert addresses_of(local).listeners == {"PLAINTEXT": "127.0.0.1:9092"}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"barnabas_replication_port": None}, "needs barnabas.replication.port"),
        ({"barnabas_replication_port": "0"}, "needs barnabas.replication.port"),
        ({"node_id": None}, "needs node.id"),
        ({"listeners": "PLAINTEXT://127.0.0.1:0,OTHER://0.0.0.0:9094"}, "a port of its own"),
        ({"advertised_listeners": None}, "needs advertised.listeners for OTHER"),
        ({"barnabas_lease_margin_ms": "3000"}, "must be less than barnabas.lease.ttl.ms"),
        ({"barnabas_replication_advertised": "db"}, "it must have the form HOST:PORT"),
        ({"barnabas_replication_advertised": "db:0"}, "it must have the form HOST:PORT"),
        ({"barnabas_replication_advertised": ":9093"}, "it must have the form HOST:PORT"),
        ({"barnabas_replication_advertised": "db:x"}, "it must have the form HOST:PORT"),
        ({"barnabas_replication_advertised": "db:65536"}, "it must have the form HOST:PORT"),
        (
            {"barnabas_brokers": "2", "listeners": "PLAINTEXT://:1", "advertised_listeners": None},
            "cannot be combined",
        ),
        ({"barnabas_lease_margin_ms": "3001"}, "must be less than barnabas.lease.ttl.ms"),
        ({"barnabas_replication_host": "0.0.0.0"}, "needs barnabas.replication.advertised"),
    ],
)
def test_what_a_node_lacks_is_said(changes: dict[str, str | None], says: str) -> None:
    with pytest.raises(PairSettingsError, match=says):
        addresses_of(config(**changes))


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("zookeeper://127.0.0.1:2181/pair", "it must have the form"),
        ("etcd://127.0.0.1:2379", "it must have the form"),
        ("etcd:///pair", "it must have the form"),
        ("etcd://127.0.0.1/pair", "has no host and port"),
        ("etcd://127.0.0.1:2379,:2380/pair", "has no host and port"),
        ("etcd://127.0.0.1:many/pair", "has no host and port"),
        ("kubernetes://default/pair", "KUBERNETES_SERVICE_HOST is not set"),
    ],
)
def test_an_invalid_lease_url_is_refused(
    url: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(PairSettingsError, match=says):
        engine_of(config(barnabas_lease_url=url), 1000)


@pytest.mark.parametrize("url", ["etcd://ann:pass@10.0.0.1/pair", "etc://ann:pass@10.0.0.1:1/pair"])
def test_an_error_shows_no_password_of_the_lease(url: str) -> None:
    with pytest.raises(PairSettingsError) as error:
        engine_of(config(barnabas_lease_url=url), 1000)
    assert "pass" not in str(error.value)


def test_several_endpoints_of_etcd() -> None:
    url = "etcd://10.0.0.1:2379,[::1]:2379/pair"
    assert isinstance(engine_of(config(barnabas_lease_url=url), 1000), EtcdEngine)


def made(monkeypatch: pytest.MonkeyPatch, **changes: str) -> tuple[str, EngineSettings]:
    """The class of the engine that these settings create, and the settings that it gets."""
    found: list[tuple[str, EngineSettings]] = []
    for name in ("EtcdEngine", "KubernetesEngine"):
        monkeypatch.setattr(
            pair_member, name, lambda settings, name=name: found.append((name, settings))
        )
    engine_of(config(**changes), 750)
    (one,) = found
    return one


def test_the_engine_of_etcd_has_what_the_settings_say(monkeypatch: pytest.MonkeyPatch) -> None:
    assert made(
        monkeypatch,
        barnabas_lease_url="etcds://10.0.0.1:2379, [::1]:2379/pair",
        barnabas_lease_ca_file="/ca.pem",
        barnabas_lease_user="ann",
        barnabas_lease_password="secret",
        barnabas_lease_ttl_ms="4000",
    ) == (
        "EtcdEngine",
        EngineSettings(
            ("https://10.0.0.1:2379", "https://[::1]:2379"),
            "pair",
            750,
            4000,
            user="ann",
            password="secret",
            ca_file="/ca.pem",
        ),
    )
    name, found = made(monkeypatch, barnabas_lease_url="etcd://10.0.0.1:2379/pair")
    assert (name, found.endpoints, found.ca_file) == ("EtcdEngine", ("http://10.0.0.1:2379",), None)


@pytest.mark.parametrize("ca_file", ["", "/ca.pem"])
@pytest.mark.parametrize(
    ("host", "port", "endpoint"),
    [("10.0.0.1", None, "https://10.0.0.1:443"), ("fd00::1", "6443", "https://[fd00::1]:6443")],
)
def test_the_engine_of_kubernetes_has_what_its_pod_says(
    monkeypatch: pytest.MonkeyPatch, host: str, port: str | None, endpoint: str, ca_file: str
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.delenv("KUBERNETES_SERVICE_PORT", raising=False)
    if port is not None:
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    wanted = {"barnabas_lease_ca_file": ca_file} if ca_file else {}
    assert made(monkeypatch, barnabas_lease_url="kubernetes://queues/pair", **wanted) == (
        "KubernetesEngine",
        EngineSettings(
            (endpoint,),
            "pair",
            750,
            3000,
            namespace="queues",
            ca_file=ca_file or f"{ACCOUNT}/ca.crt",
        ),
    )


def test_invalid_addresses_of_the_other_node_are_left_out() -> None:
    given = {"A": "10.0.0.1:9092", "B": "::1:9092", "C": "10.0.0.1", "D": ":9092", "E": "a:b",
            "F": "a:70000"}  # fmt: skip
    found = addresses_for_clients(NodeAddresses("", given))
    assert found == {"A": ("10.0.0.1", 9092), "B": ("::1", 9092)}
