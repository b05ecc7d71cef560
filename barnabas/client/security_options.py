"""How connections are protected, as values: the protocol, TLS, and the login.

`security` makes them from settings, and makes of them a TLS context and a login. A client without
either imports only this module.
"""

from __future__ import annotations

from typing import NamedTuple

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"
SCRAM_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS = (PLAIN, *SCRAM_HASHES, OAUTHBEARER)


_SECRETS = ("secret", "password", "pem")  # the ends of the names of fields that no text may show


def _without_secrets(options: TokenSource | SecurityOptions) -> str:
    """The options as text, without the fields that are secret."""
    shown = (
        f"{name}={value!r}"
        for name, value in options._asdict().items()
        if not name.endswith(_SECRETS)
    )
    return f"{type(options).__name__}({', '.join(shown)})"


class TlsSettings(NamedTuple):
    """The lowest and highest TLS version that may be used, and the cipher suites by OpenSSL's
    names.

    `suites_13` are the suites of TLS 1.3, `suites` those of TLS 1.2. If no suites are given,
    OpenSSL's default applies.
    """

    lowest: str = "TLSv1.2"
    highest: str = "TLSv1.3"
    suites: tuple[str, ...] = ()
    suites_13: tuple[str, ...] = ()


class TokenSource(NamedTuple):
    """A source of tokens. Either endpoint_url or provider is set."""

    endpoint_url: str = ""
    client_id: str = ""
    client_secret: str = ""
    scope: str = ""
    encodes_header: bool = False
    provider: str = ""
    extensions: tuple[tuple[str, str], ...] = ()
    timeout_ms: int = 10_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 10_000

    def __repr__(self) -> str:
        return _without_secrets(self)


ANY_TLS, NO_TOKENS = TlsSettings(), TokenSource()


class SecurityOptions(NamedTuple):
    """The protection of a connection.

    At most one of `x_file` and `x_pem` is set. Without ca_file and ca_pem, the system's authorities
    are trusted. Whether a file is PEM or PKCS#12 is recognised by its content. If `x_type` is
    given, the other format is rejected.
    """

    protocol: str = "PLAINTEXT"
    ca_file: str | None = None
    ca_pem: str | None = None
    ca_type: str | None = None
    ca_password: str | None = None
    certificate_file: str | None = None
    certificate_pem: str | None = None
    certificate_type: str | None = None
    certificate_password: str | None = None
    key_file: str | None = None  # None if the key is in certificate_file
    key_pem: str | None = None
    key_password: str | None = None
    check_hostname: bool = True
    tls: TlsSettings = ANY_TLS
    mechanism: str | None = None
    username: str = ""
    password: str = ""
    tokens: TokenSource = NO_TOKENS

    def __repr__(self) -> str:
        return _without_secrets(self)

    @property
    def login_name(self) -> str:
        """A text for messages that says which user logs in."""
        return "this client" if self.mechanism == OAUTHBEARER else f"user {self.username!r}"

    @property
    def uses_tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.protocol in ("SASL_PLAINTEXT", "SASL_SSL")


UNPROTECTED = SecurityOptions()
