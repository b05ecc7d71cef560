"""Converts TLS versions and cipher suites from Java's names to OpenSSL's settings.

ssl.enabled.protocols is a list of TLSv1.2 and TLSv1.3. If it is not set, ssl.protocol=TLSv1.2
disables TLS 1.3. ssl.cipher.suites has the suites' names in RFC 8446 and Java, or OpenSSL's names.
From Python 3.15 on, single suites of TLS 1.3 can be chosen. Before that, a list must contain either
all of OpenSSL's TLS 1.3 suites or none. If it contains none, TLS 1.3 is disabled, as in Java.
"""

from __future__ import annotations

import re
import ssl

from barnabas.client.security_options import TlsSettings

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
# OpenSSL's default suites of TLS 1.3.
SUITES_OF_TLS_1_3 = (
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_AES_128_GCM_SHA256",
)
_JAVA_SUITE = re.compile(
    r"TLS_(?P<exchange>[A-Z_]+)_WITH_(?P<cipher>AES_(?P<bits>128|256)_(?P<mode>GCM|CBC)|"
    r"CHACHA20_POLY1305)_(?P<hash>SHA|SHA256|SHA384)"
)


class TlsSettingError(ValueError):
    """A TLS version or a cipher suite cannot be used. The message contains the name of the
    option.
    """


def apply_tls(settings: TlsSettings, context: ssl.SSLContext) -> None:
    """Apply the settings to a context. Raises: TlsSettingError for a suite that OpenSSL does
    not have.
    """
    context.minimum_version = VERSIONS[settings.lowest]
    context.maximum_version = VERSIONS[settings.highest]
    for name in settings.suites:
        try:
            context.set_ciphers(name)
        except ssl.SSLError:
            raise TlsSettingError(
                f"option kafka.ssl.cipher.suites: this OpenSSL does not have {name}"
            ) from None
    if settings.suites:
        context.set_ciphers(":".join(settings.suites))
    if settings.suites_13 and set(settings.suites_13) != set(SUITES_OF_TLS_1_3):
        getattr(context, "set_ciphersuites")(":".join(settings.suites_13))  # noqa: B009


def parse_tls_settings(
    protocol: str | None, enabled: str | None, suites: str | None
) -> TlsSettings:
    """Parse the values of ssl.protocol, ssl.enabled.protocols and ssl.cipher.suites.

    Raises: TlsSettingError.
    """
    names = _listed(enabled) or _default_versions(protocol)
    unknown = [name for name in names if name not in VERSIONS]
    if unknown:
        raise TlsSettingError(
            f"option kafka.ssl.enabled.protocols: {', '.join(unknown)} is not supported, only "
            f"{' and '.join(VERSIONS)}"
        )
    settings = TlsSettings(min(names), max(names))
    return _with_suites(settings, _listed(suites)) if suites else settings


def _default_versions(protocol: str | None) -> list[str]:
    """The TLS versions that the setting ssl.protocol enables. Raises: TlsSettingError."""
    if protocol in (None, "", "TLS", "TLSv1.3"):
        return list(VERSIONS)
    if protocol == "TLSv1.2":
        return ["TLSv1.2"]
    raise TlsSettingError(
        f"option kafka.ssl.protocol={protocol!r}: give TLSv1.3, TLSv1.2 or TLS, or leave it out"
    )


def _listed(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _with_suites(settings: TlsSettings, names: list[str]) -> TlsSettings:
    """The settings with these cipher suites. A version of TLS for which no suite is listed is
    disabled. Raises: TlsSettingError.
    """
    suites_13 = tuple(name for name in names if name in SUITES_OF_TLS_1_3)
    suites = tuple(openssl_name(name) for name in names if name not in SUITES_OF_TLS_1_3)
    if not suites_13:
        if settings.lowest == "TLSv1.3":
            raise TlsSettingError(
                "option kafka.ssl.cipher.suites has no suite of TLS 1.3, and "
                "kafka.ssl.enabled.protocols has only that"
            )
        return settings._replace(highest="TLSv1.2", suites=suites)
    if not suites:
        if settings.highest == "TLSv1.2":
            raise TlsSettingError(
                "option kafka.ssl.cipher.suites has only suites of TLS 1.3, which "
                "kafka.ssl.enabled.protocols leaves out"
            )
        settings = settings._replace(lowest="TLSv1.3")
    can_choose = hasattr(ssl.SSLContext, "set_ciphersuites") or settings.highest == "TLSv1.2"
    if not can_choose and set(suites_13) != set(SUITES_OF_TLS_1_3):
        raise TlsSettingError(
            "option kafka.ssl.cipher.suites: this Python cannot choose among the suites of TLS "
            f"1.3 (3.15 can); give all of {', '.join(SUITES_OF_TLS_1_3)}, or none of them, for "
            "TLS 1.2 only"
        )
    return settings._replace(suites=suites, suites_13=suites_13)


def openssl_name(name: str) -> str:
    """OpenSSL's name of a suite of TLS 1.2. A name in another form is assumed to be OpenSSL's."""
    match = _JAVA_SUITE.fullmatch(name)
    if match is None:
        return name
    exchange = "" if match["exchange"] == "RSA" else match["exchange"].replace("_", "-") + "-"
    if match["cipher"] == "CHACHA20_POLY1305":
        return f"{exchange}CHACHA20-POLY1305"
    mode = "-GCM" if match["mode"] == "GCM" else ""
    return f"{exchange}AES{match['bits']}{mode}-{match['hash']}"
