"""TLS versions and cipher suites with Java's names, and their translation for OpenSSL."""

from __future__ import annotations

import ssl

import pytest

from barnabas.client.tls_settings import (
    SUITES_OF_TLS_1_3,
    TlsSettingError,
    apply_tls,
    openssl_name,
    parse_tls_settings,
)

# Source: RFC 5289, RFC 7905, RFC 5246, and `openssl ciphers -stdname`.
NAMES = {
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384": "DHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384": "ECDHE-RSA-AES256-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
}
ECDHE = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
ALL_13 = ",".join(SUITES_OF_TLS_1_3)


def context_of(*values: str | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    apply_tls(parse_tls_settings(*values), context)
    return context


@pytest.mark.parametrize("name", NAMES)
def test_a_suite_of_java_is_the_one_of_openssl(name: str) -> None:
    assert openssl_name(name) == NAMES[name]
    context = context_of(None, None, name)
    offered = {each["name"] for each in context.get_ciphers()} - set(SUITES_OF_TLS_1_3)
    assert offered == {NAMES[name]}


@pytest.mark.parametrize(
    ("protocol", "enabled", "suites", "lowest", "highest"),
    [
        (None, None, None, "TLSv1_2", "TLSv1_3"),
        ("TLSv1.3", None, None, "TLSv1_2", "TLSv1_3"),
        ("TLSv1.2", None, None, "TLSv1_2", "TLSv1_2"),
        (None, "TLSv1.3", None, "TLSv1_3", "TLSv1_3"),
        (None, "TLSv1.3, TLSv1.2", None, "TLSv1_2", "TLSv1_3"),
        (None, None, ECDHE, "TLSv1_2", "TLSv1_2"),
        (None, None, f"{ECDHE},{ALL_13}", "TLSv1_2", "TLSv1_3"),
        (None, None, ALL_13, "TLSv1_3", "TLSv1_3"),
    ],
)
def test_versions(
    protocol: str | None, enabled: str | None, suites: str | None, lowest: str, highest: str
) -> None:
    context = context_of(protocol, enabled, suites)
    assert context.minimum_version == ssl.TLSVersion[lowest]
    assert context.maximum_version == ssl.TLSVersion[highest]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ((None, "TLSv1.2,TLSv1", None), r"ssl.enabled.protocols: TLSv1 is not supported"),
        (("SSLv3", None, None), r"ssl.protocol='SSLv3': give TLSv1.3, TLSv1.2 or TLS"),
        ((None, "TLSv1.3", ECDHE), "has no suite of TLS 1.3"),
        ((None, "TLSv1.2", ALL_13), "has only suites of TLS 1.3"),
        ((None, None, f"{ECDHE},NONSENSE"), "this OpenSSL does not have NONSENSE"),
    ],
)
def test_what_cannot_be_is_refused(values: tuple[str | None, ...], says: str) -> None:
    with pytest.raises(TlsSettingError, match=says):
        context_of(*values)


def test_some_suites_of_tls_1_3_are_chosen_or_refused() -> None:
    chosen = SUITES_OF_TLS_1_3[0]
    if not hasattr(ssl.SSLContext, "set_ciphersuites"):
        with pytest.raises(TlsSettingError, match=r"cannot choose among the suites of TLS 1.3"):
            context_of(None, None, chosen)
        return
    offered = {each["name"] for each in context_of(None, None, chosen).get_ciphers()}
    assert offered & set(SUITES_OF_TLS_1_3) == {chosen}
