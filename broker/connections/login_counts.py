"""Counts of successful and failed logins, by listener and mechanism."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from barnabas.broker.settings.listeners import ListenerConfig

TLS = "TLS"  # counts as the mechanism of logins by certificate
# counts as the mechanism of clients that are refused before they have chosen one
NO_MECHANISM = "none"


class LoginCount(NamedTuple):
    """The number of logins with one result, at one listener by one mechanism."""

    listener: str
    mechanism: str
    has_succeeded: bool
    total: int


class LoginCounts:
    """The logins at each listener that authenticates its clients, since the start.

    The number of counters depends on the settings, not on the clients. A renewal of a session
    (KIP-368) counts as a login; Apache Kafka also counts reauthentications.
    """

    def __init__(self, listeners: Iterable[ListenerConfig]) -> None:
        self._counts = {
            (listener.name, mechanism): [0, 0]
            for listener in listeners
            for mechanism in _mechanisms(listener)
        }

    def count(self, listener: ListenerConfig, mechanism: str, *, has_succeeded: bool) -> None:
        """Count one login."""
        counts = self._counts.get((listener.name, mechanism or NO_MECHANISM))
        if counts is not None:
            counts[has_succeeded] += 1

    def count_certificate(self, listener: ListenerConfig, *, has_succeeded: bool) -> None:
        """Count one login by a client's certificate."""
        self.count(listener, TLS, has_succeeded=has_succeeded)

    def rows(self) -> Iterator[LoginCount]:
        """All counters. Those that are 0 are included, since a rate has to begin at zero."""
        for (listener, mechanism), counts in self._counts.items():
            for has_succeeded in (True, False):
                yield LoginCount(listener, mechanism, has_succeeded, counts[has_succeeded])


def _mechanisms(listener: ListenerConfig) -> tuple[str, ...]:
    """The mechanisms by which clients can log in at a listener; NO_MECHANISM counts failures before
    a mechanism is chosen.
    """
    if listener.has_sasl:
        return (*listener.sasl_mechanisms, NO_MECHANISM)
    if listener.has_tls and listener["ssl.client.auth"] != "none":
        return (TLS,)
    return ()
