"""Records the logins of clients, by SASL or by a certificate: their principals, counts and audit
records.
"""

from __future__ import annotations

from barnabas.broker.audit import ANONYMOUS, BY_CERTIFICATE
from barnabas.broker.connections.connection_state import ConnectionState, login_record
from barnabas.broker.connections.login_counts import LoginCounts
from barnabas.broker.outbox import Outbox
from barnabas.broker.settings.config import BrokerConfig


class Logins:
    """Counts logins, and writes them to the audit log, if there is one.

    counts: the numbers of logins that succeeded and failed.
    """

    def __init__(self, config: BrokerConfig, outbox: Outbox) -> None:
        self._outbox = outbox
        self._is_audited = bool(config.barnabas_audit_log)
        self.counts = LoginCounts(config.listeners)

    def on_certificate(self, connection: ConnectionState, principal: str) -> None:
        """Record that a client has completed the TLS handshake.

        Takes: principal, the principal from the client's certificate; ANONYMOUS if the client has
               no certificate, and none is required.
        """
        connection.principal, connection.access = principal, None
        if principal != ANONYMOUS:
            self._on_tls(connection, has_succeeded=True)

    def on_no_certificate(self, connection: ConnectionState) -> None:
        """Record that the TLS handshake failed on a listener that accepts client certificates."""
        self._on_tls(connection, has_succeeded=False)

    def _on_tls(self, connection: ConnectionState, *, has_succeeded: bool) -> None:
        self.counts.count_certificate(connection.listener, has_succeeded=has_succeeded)
        self._audit(connection, BY_CERTIFICATE, has_succeeded)

    def on_sasl(
        self, connection: ConnectionState, mechanism: str, api_key: int, *, has_succeeded: bool
    ) -> None:
        """Record that a SASL login has succeeded or failed. Takes: api_key, the API key of the
        request with which the login ended.
        """
        self.counts.count(connection.listener, mechanism, has_succeeded=has_succeeded)
        self._audit(connection, api_key, has_succeeded)

    def _audit(self, connection: ConnectionState, api_key: int, is_allowed: bool) -> None:
        if self._is_audited:
            self._outbox.audit.append(login_record(connection, api_key, is_allowed=is_allowed))
