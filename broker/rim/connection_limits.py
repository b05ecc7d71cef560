"""The limits of connections: their number and their rate, in all and from each address.

    setting or quota                     a connection beyond it
    max.connections                      waits until another one ends
    max.connection.creation.rate         is accepted, and those after it wait
    connection_creation_rate (a quota    is closed after the time to wait, a window at most,
     of an address, KIP-612)              and not counted
    max.connections.per.ip, and          it is closed at once
     max.connections.per.ip.overrides

A listener may have its own `max.connections` and `max.connection.creation.rate`. Its clients then
wait because of these.

Rates are measured over the windows of `quota.window.num` and `quota.window.size.seconds`. All these
limits may change at run time, except those of a single listener. Source: KIP-402, KIP-612; Apache
Kafka 3.9.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from barnabas.broker.logs.metadata import QuotaEntity
from barnabas.broker.quotas.entities import limit_of_address
from barnabas.broker.quotas.rates import Rate, Windows
from barnabas.broker.settings.config import BrokerConfig, parse_connection_overrides
from barnabas.broker.settings.listeners import ListenerConfig
from barnabas.broker.settings.setting import INT_MAX
from barnabas.protocol.request_context import UNIX_SCHEME

MAX_CONNECTIONS, MAX_RATE = "max.connections", "max.connection.creation.rate"
FEWEST_KEPT = 1000
# used instead of 0, since the computation of the throttle time would divide by zero
LEAST_RATE = 1e-9


class Refusal(NamedTuple):
    """The refusal of a connection, which is closed after after_ms milliseconds."""

    after_ms: int
    why: str


class ListenerLimits:
    """The limits of one listener: the number of its connections, and their rate."""

    def __init__(self, most: int, most_per_s: int, windows: Windows, now_ms: int) -> None:
        self._most, self._most_per_s, self._windows = most, most_per_s, windows
        self._count, self._rate = 0, Rate(windows, now_ms)

    def on_connected(self, now_ms: int) -> int:
        """Count an accepted connection. Gives: the time in ms for which no other connection is
        accepted.
        """
        self._count += 1
        return _pause_ms(self._rate, self._most_per_s, self._windows, now_ms)

    def on_closed(self) -> None:
        """Handle the end of an accepted connection."""
        self._count -= 1

    @property
    def is_full(self) -> bool:
        """Whether the listener has its maximum number of connections."""
        return self._count >= self._most


def limits_of_listener(
    listener: ListenerConfig, config: BrokerConfig, now_ms: int
) -> ListenerLimits:
    """The limits of one listener, from its own settings."""
    most, most_per_s = (
        listener[name] if name in listener.own else INT_MAX for name in (MAX_CONNECTIONS, MAX_RATE)
    )
    return ListenerLimits(most, most_per_s, _windows(config), now_ms)


def _windows(config: BrokerConfig) -> Windows:
    return Windows(config.quota_window_num, config.quota_window_size_seconds * 1000)


def _pause_ms(rate: Rate, most_per_s: int, windows: Windows, now_ms: int) -> int:
    """Count an accepted connection. Gives: the time in ms for which no other connection is
    accepted.
    """
    if most_per_s == INT_MAX:
        return 0
    rate.record(1, now_ms)
    return min(rate.throttle_ms(max(most_per_s, LEAST_RATE), now_ms), windows.size_ms)


class ConnectionLimits:
    """Counts the connections, in all and from each address, and measures their rates.

    Takes: quotas, the quotas in the metadata journal; addresses, the addresses of the open
           connections.
    """

    def __init__(
        self,
        config: BrokerConfig,
        quotas: Mapping[QuotaEntity, Mapping[str, float]],
        addresses: Iterable[str],
        now_ms: int,
    ) -> None:
        self._config, self._quotas = config, quotas
        self._windows = _windows(config)
        self._counts = Counter(addresses)
        self._total = self._counts.total()
        self._rate = Rate(self._windows, now_ms)
        self._rates: dict[str, Rate] = {}
        self._most_kept = FEWEST_KEPT

    def on_connected(self, address: str, now_ms: int) -> Refusal | None:
        """Check a new connection from an address. Gives: None if the connection may stay, in which
        case it is counted until `on_closed`.
        """
        refusal = self._refusal(address, now_ms)
        if refusal is not None:
            return refusal
        self._counts[address] += 1
        self._total += 1
        return None

    def _refusal(self, address: str, now_ms: int) -> Refusal | None:
        """Why an address may not have another connection; None if it may."""
        if address.startswith(UNIX_SCHEME):
            return None  # a Unix domain socket has no address
        wait_ms = self._throttle_address(address, now_ms)
        if wait_ms:
            return Refusal(wait_ms, f"{address} exceeds its connection_creation_rate")
        config = self._config
        most = parse_connection_overrides(config.max_connections_per_ip_overrides).get(
            address, config.max_connections_per_ip
        )
        if self._counts[address] >= most:
            return Refusal(0, f"{address} has {most} connections (max.connections.per.ip)")
        return None

    def on_closed(self, address: str) -> None:
        """Handle the end of a connection from an address that was counted."""
        self._total -= 1
        self._counts[address] -= 1
        if self._counts[address] <= 0:
            del self._counts[address]

    @property
    def is_full(self) -> bool:
        """Whether the broker has its maximum number of connections."""
        return self._total >= self._config.max_connections

    def pause_ms(self, now_ms: int) -> int:
        """Count an accepted connection. Gives: the time in ms for which no other connection is
        accepted.
        """
        most = self._config.max_connection_creation_rate
        return _pause_ms(self._rate, most, self._windows, now_ms)

    def _throttle_address(self, address: str, now_ms: int) -> int:
        """The time in ms that a connection has to wait because of its address's rate. A connection
        that has to wait is not counted.
        """
        limit = limit_of_address(self._quotas, address)
        if limit is None:
            return 0
        rate = self._rates.get(address)
        if rate is None:
            self._make_room(now_ms)
            rate = self._rates[address] = Rate(self._windows, now_ms)
        rate.record(1, now_ms)
        wait_ms = min(rate.throttle_ms(limit, now_ms), self._windows.size_ms)
        if wait_ms:
            rate.record(-1, now_ms)
        return wait_ms

    def _make_room(self, now_ms: int) -> None:
        """Drop the addresses without a recent connection, whenever the number of stored addresses
        has doubled.
        """
        if len(self._rates) < self._most_kept:
            return
        for address in [one for one, rate in self._rates.items() if rate.is_obsolete(now_ms)]:
            del self._rates[address]
        self._most_kept = max(FEWEST_KEPT, 2 * len(self._rates))
