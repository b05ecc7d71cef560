"""How many logins succeeded and failed, by listener and mechanism."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from barnabas.broker.settings.listeners import ListenerConfig

TLS = "TLS"  # by a certificate
NO_MECHANISM = "none"  # who is refused before he has chosen one


class LoginCount(NamedTuple):
    """A row: what came of the logins at one listener by one mechanism."""

    listener: str
    mechanism: str
    has_succeeded: bool
    total: int


class LoginCounts:
    """The logins of each listener that asks who clients are, since the start.

    There are as many rows as the settings name mechanisms, whatever clients say. A renewal of a
    session (KIP-368) is a login, as with Apache Kafka a reauthentication is counted.
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
        """All rows, also those with nothing in them: a rate begins at zero."""
        for (listener, mechanism), counts in self._counts.items():
            for has_succeeded in (True, False):
                yield LoginCount(listener, mechanism, has_succeeded, counts[has_succeeded])


def _mechanisms(listener: ListenerConfig) -> tuple[str, ...]:
    if listener.has_sasl:
        return (*listener.sasl_mechanisms, NO_MECHANISM)
    if listener.has_tls and listener["ssl.client.auth"] != "none":
        return (TLS,)
    return ()
