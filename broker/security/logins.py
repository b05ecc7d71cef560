"""Logins of clients, by SASL or by a certificate: who they are, how many, and the audit log."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from barnabas.broker.connections import ConnectionState, login_record
from barnabas.broker.security.audit import ANONYMOUS, BY_CERTIFICATE

if TYPE_CHECKING:
    from barnabas.broker.observation.login_counts import LoginCounts
    from barnabas.broker.outbox import Outbox
    from barnabas.broker.settings.config import BrokerConfig


class Logins:
    """What came of the logins: it is counted, and written to the audit log where there is one."""

    def __init__(self, config: BrokerConfig, outbox: Outbox) -> None:
        self._listeners, self._outbox = config.listeners, outbox
        self._is_audited = bool(config.barnabas_audit_log)

    @functools.cached_property
    def counts(self) -> LoginCounts:
        """How many logins succeeded and failed; most brokers need none of it."""
        from barnabas.broker.observation.login_counts import LoginCounts

        return LoginCounts(self._listeners)

    def on_certificate(self, connection: ConnectionState, principal: str) -> None:
        """A client has shown by a certificate who it is; ANONYMOUS: it has shown none, and need
        not.
        """
        connection.principal, connection.access = principal, None
        if principal != ANONYMOUS:
            self._on_tls(connection, has_succeeded=True)

    def on_no_certificate(self, connection: ConnectionState) -> None:
        """A client that may, or has to, show a certificate has not set up TLS."""
        self._on_tls(connection, has_succeeded=False)

    def _on_tls(self, connection: ConnectionState, *, has_succeeded: bool) -> None:
        self.counts.count_certificate(connection.listener, has_succeeded=has_succeeded)
        self._audit(connection, BY_CERTIFICATE, has_succeeded)

    def on_sasl(
        self, connection: ConnectionState, mechanism: str, api_key: int, *, has_succeeded: bool
    ) -> None:
        """A login by SASL has come to an end. Takes: api_key, of the request that ended it."""
        self.counts.count(connection.listener, mechanism, has_succeeded=has_succeeded)
        self._audit(connection, api_key, has_succeeded)

    def _audit(self, connection: ConnectionState, api_key: int, is_allowed: bool) -> None:
        if self._is_audited:
            self._outbox.audit.append(login_record(connection, api_key, is_allowed=is_allowed))
