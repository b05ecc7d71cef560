"""Limits on the number and the rate of connections. The expected times were recorded with Apache
Kafka 3.9.
"""

from __future__ import annotations

import pytest

from barnabas.broker.logs.metadata import QuotaEntity
from barnabas.broker.quotas.entities import limit_of_address
from barnabas.broker.rim.connection_limits import (
    FEWEST_KEPT,
    ConnectionLimits,
    ListenerLimits,
    Refusal,
    limits_of_listener,
)
from barnabas.broker.settings.config import BrokerConfig, parse_connection_overrides
from barnabas.broker.settings.setting import INT_MAX, ConfigError

HERE, THERE = "192.0.2.1", "192.0.2.2"
PER_IP, OVERRIDES = "max.connections.per.ip", "max.connections.per.ip.overrides"
Quotas = dict[QuotaEntity, dict[str, float]]


def limits(
    settings: dict[str, str] | None = None,
    quotas: Quotas | None = None,
    addresses: tuple[str, ...] = (),
) -> ConnectionLimits:
    config = BrokerConfig.from_properties(settings or {})
    return ConnectionLimits(config, quotas or {}, addresses, 0)


def rate_of(address: str | None, value: float) -> Quotas:
    return {(("ip", address),): {"connection_creation_rate": value}}


def test_connections_of_one_address_are_counted() -> None:
    bound = limits({PER_IP: "2"}, addresses=(HERE,))
    assert bound.on_connected(HERE, 0) is None
    refusal = bound.on_connected(HERE, 0)
    assert refusal is not None and refusal.after_ms == 0 and HERE in refusal.why
    assert bound.on_connected(THERE, 0) is None
    bound.on_closed(HERE)
    assert bound.on_connected(HERE, 0) is None
    assert bound.on_connected(HERE, 0) is not None


def test_overrides_set_another_limit_for_some_addresses() -> None:
    bound = limits({PER_IP: "0", OVERRIDES: f"{HERE}:1, [2001:db8::1]:2"})
    assert bound.on_connected(THERE, 0) is not None
    assert [bound.on_connected(HERE, 0) is None for _ in range(2)] == [True, False]
    assert [bound.on_connected("2001:db8::1", 0) is None for _ in range(3)] == [True, True, False]


def test_all_connections_are_counted() -> None:
    bound = limits({"max.connections": "3"}, addresses=(HERE,))
    for address in (HERE, THERE):
        assert not bound.is_full
        assert bound.on_connected(address, 0) is None
    assert bound.is_full
    bound.on_closed(HERE)
    assert not bound.is_full


def test_connections_above_the_rate_of_an_address_are_closed_after_a_delay() -> None:
    """In the recording, with a rate of 1 per second, ten connections were accepted, and ten further
    connections were closed after a second each.
    """
    bound = limits(quotas=rate_of(HERE, 1.0))
    assert [bound.on_connected(HERE, 3) for _ in range(10)] == [None] * 10
    why = f"{HERE} exceeds its connection_creation_rate"
    assert [bound.on_connected(HERE, 10) for _ in range(10)] == [Refusal(993, why)] * 10
    assert bound.on_connected(THERE, 10) is None
    assert bound.on_connected(HERE, 10_003) == Refusal(1000, why)
    assert bound.on_connected(HERE, 11_003) is None


def test_the_default_of_addresses_holds_for_each_by_itself() -> None:
    bound = limits({"quota.window.num": "2"}, rate_of(None, 1.0) | rate_of(THERE, 100.0))
    assert [bound.on_connected(HERE, 0) is None for _ in range(2)] == [True, False]
    assert [bound.on_connected(THERE, 0) is None for _ in range(2)] == [True, True]
    assert bound.on_connected("192.0.2.3", 0) is None


def test_a_refused_connection_is_not_counted() -> None:
    bound = limits({PER_IP: "1", "quota.window.num": "2"}, rate_of(HERE, 1.0))
    assert bound.on_connected(HERE, 0) is None
    refusal = bound.on_connected(HERE, 0)
    assert refusal is not None and refusal.after_ms == 1000
    bound.on_closed(HERE)
    assert bound.on_connected(HERE, 3000) is None


def test_above_the_broker_wide_rate_the_broker_pauses_before_it_accepts() -> None:
    bound = limits({"max.connection.creation.rate": "2", "quota.window.num": "2"})
    assert [bound.pause_ms(0) for _ in range(3)] == [0, 0, 500]
    assert bound.pause_ms(0) == 1000
    assert limits({"max.connection.creation.rate": "0"}).pause_ms(0) == 1000
    assert limits().pause_ms(0) == 0


def test_nothing_is_kept_of_an_address_whose_connections_have_ended() -> None:
    """The count of an address is dropped with its last connection, since the number of addresses is
    not bounded. Connections from before the limits were set are counted as well.
    """
    bound = limits(addresses=(HERE, HERE))
    for number in range(300):
        assert bound.on_connected(f"198.51.100.{number}", 0) is None
    assert len(bound._counts) == 301
    for number in range(300):
        bound.on_closed(f"198.51.100.{number}")
    assert bound._counts == {HERE: 2}
    bound.on_closed(HERE)
    assert bound._counts == {HERE: 1}
    bound.on_closed(HERE)
    assert bound._counts == {}


def test_what_is_kept_of_addresses_is_bounded() -> None:
    """A new address connects every 11 ms, so the window of 11 s contains 1,000 addresses. Older
    addresses are dropped.
    """
    bound = limits(quotas=rate_of(None, 5.0))
    for number in range(3 * FEWEST_KEPT):
        bound.on_connected(f"2001:db8::{number:x}", number * 11)
    assert len(bound._rates) <= 1200


@pytest.mark.parametrize("text", ["a", "a:", ":1", "::1:-1", "::1:x", "localhost:1", "::1:1;::2:2"])
def test_invalid_overrides_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="ADDRESS:NUMBER"):
        BrokerConfig.from_properties({OVERRIDES: text})
    config = BrokerConfig.from_properties({})
    with pytest.raises(ConfigError, match="ADDRESS:NUMBER"):
        config.set_dynamic({OVERRIDES: text})
    assert config.max_connections_per_ip_overrides == ""


def test_settings_that_refuse_every_connection_are_invalid() -> None:
    assert parse_connection_overrides("") == {}
    with pytest.raises(ConfigError, match="no client could connect"):
        BrokerConfig.from_properties({PER_IP: "0"})
    config = BrokerConfig.from_properties({PER_IP: "0", OVERRIDES: "127.0.0.1:5"})
    with pytest.raises(ConfigError, match="no client could connect"):
        config.set_dynamic({OVERRIDES: ""})


def test_sockets_in_the_file_system_have_no_address() -> None:
    path = "unix:///run/barnabas/socket"
    settings = {PER_IP: "1", "max.connections": "3", "quota.window.num": "1"}
    bound = limits(settings, rate_of(None, 1.0))
    assert [bound.on_connected(path, 0) for _ in range(3)] == [None] * 3
    assert bound.is_full
    bound.on_closed(path)
    assert not bound.is_full


def test_settings_say_whether_connections_are_limited() -> None:
    config = BrokerConfig.from_properties({})
    assert not config.limits_connections
    for name in ("max.connections", PER_IP, "max.connection.creation.rate"):
        config.set_dynamic({name: "7"})
        assert config.limits_connections
        config.set_dynamic({name: str(INT_MAX)})
        assert not config.limits_connections
    config.set_dynamic({OVERRIDES: "127.0.0.1:5"})
    assert config.limits_connections


@pytest.mark.parametrize("name", ["2001:db8::a", "2001:DB8:0:0:0:0:0:A", "2001:db8:0:0::000a"])
def test_a_quota_holds_for_an_address_however_it_is_written(name: str) -> None:
    assert limit_of_address(rate_of(name, 2.0), "2001:db8::a") == 2.0
    assert limit_of_address(rate_of(name, 2.0), "2001:db8::b") is None
    quotas = rate_of("::ffff:192.0.2.1", 3.0) | rate_of(None, 5.0)
    assert limit_of_address(quotas, "2001:db8::a") == 5.0


def listener_limits(**own: str) -> ListenerLimits:
    properties = {
        "listeners": "A://127.0.0.1:1",
        "listener.security.protocol.map": "A:PLAINTEXT",
        "quota.window.num": "1",
        "max.connections": "5",
        **{f"listener.name.a.{name.replace('_', '.')}": text for name, text in own.items()},
    }
    config = BrokerConfig.from_properties(properties)
    assert config.listeners[0].limits_connections
    return limits_of_listener(config.listeners[0], config, 0)


def test_a_listener_can_limit_the_number_of_its_connections() -> None:
    bound = listener_limits(max_connections="2")
    assert [bound.on_connected(0) for _ in range(2)] == [0, 0]
    assert bound.is_full
    bound.on_closed()
    assert not bound.is_full


def test_a_listener_with_a_rate_alone_is_never_full() -> None:
    """This listener has no limit of its own on the number of connections. They count only towards
    the broker's limit.
    """
    bound = listener_limits(max_connection_creation_rate="2")
    pauses = [bound.on_connected(0) for _ in range(10)]
    assert pauses == sorted(pauses)
    assert pauses[0] < pauses[-1] == 1000  # a pause takes at most one window
    assert not bound.is_full
