"""The protection of the link between a leader and its standby. A start without it is refused.

    barnabas.replication.secret              always: each side proves that it knows the secret
    barnabas.replication.security.protocol   SSL, with the settings ssl.* of listeners; or
                                             PLAINTEXT. Not set: SSL if ssl.* names a key or
                                             authorities

All records and the users' credentials are sent over the link. So without TLS it is only allowed
between addresses of this machine.
"""

from __future__ import annotations

import ssl

from barnabas.broker.rim.tls import TlsListener, make_client_context
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.exposure import is_local

SECRET = "barnabas.replication.secret"
PROTOCOL = "barnabas.replication.security.protocol"
_OF_TLS = (
    "ssl.keystore.location",
    "ssl.keystore.key",
    "ssl.truststore.location",
    "ssl.truststore.certificates",
)


class LinkSecurityError(Exception):
    """The link would be unprotected; the text says which settings to add."""


def check_secret(config: BrokerConfig) -> None:
    """Check that a secret is set. Raises: LinkSecurityError."""
    if not (config.barnabas_replication_secret or "").strip():
        raise LinkSecurityError(
            f"{SECRET} is not set: every client of barnabas.replication.port gets all records and "
            "the users' credentials. Give the leader and its standby the same long secret "
            "(`openssl rand -hex 32` makes one), in the file of --config, or as "
            f"{SECRET}=${{file:/PATH:KEY}}"
        )


def check_address(config: BrokerConfig, setting: str, host: str) -> None:
    """Check that data are not sent over a network without TLS.

    Takes:  setting, the name of the setting that contains the host.
    Raises: LinkSecurityError.
    """
    if not is_local(host) and not has_tls(config):
        raise LinkSecurityError(
            f"{setting}: {host or 'every address'} is reachable from other machines, and the "
            f"link would not be encrypted. Set {PROTOCOL}=SSL with ssl.keystore.location and "
            "ssl.truststore.location, as for a listener, on both sides; or use 127.0.0.1, and a "
            "tunnel to it"
        )


def has_tls(config: BrokerConfig) -> bool:
    """Whether the link uses TLS."""
    protocol = config.barnabas_replication_security_protocol
    if protocol:
        return protocol == "SSL"
    return any(config.explicit.get(name) for name in _OF_TLS)


def leaders_tls(config: BrokerConfig) -> TlsListener | None:
    """The TLS settings of the leader's side; None without TLS. Raises: TlsError."""
    return TlsListener(_tls_settings(config)) if has_tls(config) else None


def standbys_tls(config: BrokerConfig) -> ssl.SSLContext | None:
    """The TLS context of a standby, made from the current files; None without TLS.

    Raises: TlsError.
    """
    return make_client_context(_tls_settings(config)) if has_tls(config) else None


def _tls_settings(config: BrokerConfig) -> dict[str, str]:
    return {name: text for name, text in config.explicit.items() if name.startswith("ssl.")}
