"""Logins of clients, by SASL or by a certificate: their principals, counts, and audit records."""

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
    """Counts logins, and writes them to the audit log, if there is one."""

    def __init__(self, config: BrokerConfig, outbox: Outbox) -> None:
        self._listeners, self._outbox = config.listeners, outbox
        self._is_audited = bool(config.barnabas_audit_log)

    @functools.cached_property
    def counts(self) -> LoginCounts:
        """The counts of logins that succeeded and failed, made at first use."""
        from barnabas.broker.observation.login_counts import LoginCounts

        return LoginCounts(self._listeners)

    def on_certificate(self, connection: ConnectionState, principal: str) -> None:
        """A client has completed the TLS handshake. principal: from its certificate; ANONYMOUS
        without one, if none is required.
        """
        connection.principal, connection.access = principal, None
        if principal != ANONYMOUS:
            self._on_tls(connection, has_succeeded=True)

    def on_no_certificate(self, connection: ConnectionState) -> None:
        """The TLS handshake failed on a listener that accepts client certificates."""
        self._on_tls(connection, has_succeeded=False)

    def _on_tls(self, connection: ConnectionState, *, has_succeeded: bool) -> None:
        self.counts.count_certificate(connection.listener, has_succeeded=has_succeeded)
        self._audit(connection, BY_CERTIFICATE, has_succeeded)

    def on_sasl(
        self, connection: ConnectionState, mechanism: str, api_key: int, *, has_succeeded: bool
    ) -> None:
        """A SASL login has succeeded or failed. Takes: api_key, the key of the request that
        completed it.
        """
        self.counts.count(connection.listener, mechanism, has_succeeded=has_succeeded)
        self._audit(connection, api_key, has_succeeded)

    def _audit(self, connection: ConnectionState, api_key: int, is_allowed: bool) -> None:
        if self._is_audited:
            self._outbox.audit.append(login_record(connection, api_key, is_allowed=is_allowed))
