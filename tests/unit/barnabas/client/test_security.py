"""Options for TLS and SASL, and SCRAM with the example of RFC 7677, section 3."""

from __future__ import annotations

import pickle
import ssl
from pathlib import Path

import pytest
from helpers.places import TESTS

pytest.importorskip("pyarrow")

from barnabas.client.sasl import AuthenticationError, PlainExchange, ScramExchange
from barnabas.client.security import (
    SecurityError,
    exchange,
    parse_jaas,
    parse_security,
    ssl_context,
)
from barnabas.client.security_options import SecurityOptions
from barnabas.spark_connector.option_error import OptionError
from barnabas.spark_connector.read.options import parse_source_options

TLS = TESTS / "fixtures" / "tls"
PASSWORD = "p4ss'word"
SCRAM_LINE = (
    f'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" '
    f'password="{PASSWORD}";'
)


def parse(**options: str) -> SecurityOptions:
    given = {"kafka." + name.replace("__", "."): value for name, value in options.items()}
    return parse_security(given.get)


def test_nothing_given_is_plaintext() -> None:
    options = parse()
    assert options == SecurityOptions() and not options.uses_tls and not options.uses_sasl
    assert parse(security__protocol="plaintext", sasl__mechanism="GSSAPI") == options


def test_names_of_the_java_client_and_of_librdkafka_mean_the_same() -> None:
    java = parse(
        security__protocol="SASL_SSL",
        ssl__truststore__type="PEM",
        ssl__truststore__location="/ca.pem",
        ssl__keystore__location="/own.pem",
        ssl__key__password="k",
        sasl__mechanism="scram-sha-256",
        sasl__jaas__config=SCRAM_LINE,
    )
    librdkafka = parse(
        security__protocol="sasl_ssl",
        ssl__ca__location="/ca.pem",
        ssl__certificate__location="/own.pem",
        ssl__key__password="k",
        sasl__mechanisms="SCRAM-SHA-256",
        sasl__username="alice",
        sasl__password=PASSWORD,
    )
    assert java == librdkafka._replace(ca_type="PEM")
    assert (java.ca_file, java.certificate_file, java.key_password) == ("/ca.pem", "/own.pem", "k")
    assert (java.mechanism, java.username, java.password, java.check_hostname) == (
        "SCRAM-SHA-256",
        "alice",
        PASSWORD,
        True,
    )


@pytest.mark.parametrize(
    ("given", "checked"), [("", False), ("none", False), ("HTTPS", True), (None, True)]
)
def test_the_host_is_checked_unless_it_is_said(given: str | None, checked: bool) -> None:
    options = {} if given is None else {"ssl__endpoint__identification__algorithm": given}
    assert parse(security__protocol="SSL", **options).check_hostname == checked


SSL = {"security__protocol": "SSL"}
SASL = {"security__protocol": "SASL_PLAINTEXT"}
PLAIN = {**SASL, "sasl__mechanism": "PLAIN"}
SCRAM = {**SASL, "sasl__mechanism": "SCRAM-SHA-512"}
BEARER = {**SASL, "sasl__mechanism": "OAUTHBEARER"}
BEARER_LINE = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
    f'clientId="me" clientSecret="{PASSWORD}" scope="all" extension_logicalCluster="lkc-1";'
)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"security__protocol": "TLS"},
            "kafka.security.protocol='TLS': give PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL",
        ),
        (
            {**SSL, "ssl__truststore__type": "BCFKS"},
            r"kafka.ssl.truststore.type='BCFKS': give PEM or PKCS12",
        ),
        (
            {**SSL, "ssl__enabled__protocols": "TLSv1.1"},
            r"kafka.ssl.enabled.protocols: TLSv1.1 is not supported, only TLSv1.2 and TLSv1.3",
        ),
        (
            {**SSL, "ssl__protocol": "SSLv3"},
            r"kafka.ssl.protocol='SSLv3': give TLSv1.3, TLSv1.2 or TLS",
        ),
        (
            {**SSL, "ssl__endpoint__identification__algorithm": "ldaps"},
            "give https, or an empty text",
        ),
        (
            {**SSL, "ssl__truststore__certificates": "x", "ssl__truststore__location": "y"},
            "give either the certificates or their file",
        ),
        ({**SSL, "ssl__keystore__key": "x"}, "one needs the other"),
        (
            {**SSL, "ssl__key__location": "x"},
            "kafka.ssl.key.location needs kafka.ssl.certificate.location",
        ),
        (
            SASL,
            "kafka.sasl.mechanism is missing: give PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTH",
        ),
        (
            BEARER,
            "OAUTHBEARER needs one of the options oauthTokenProvider.*token.endpoint.url",
        ),
        (
            {**BEARER, "sasl__oauthbearer__token__endpoint__url": "https://a/t"},
            "needs kafka.sasl.oauthbearer.client.credentials.client.id and .*secret",
        ),
        (
            {**BEARER, "sasl__oauthbearer__token__endpoint__url": "ftp://a/t"},
            r"token.endpoint.url='ftp://a/t': give https://… or file:///…",
        ),
        (
            {**BEARER, "sasl__login__callback__handler__class": "io.strimzi.Handler"},
            "login.callback.handler.class='io.strimzi.Handler': Java classes are not supported; "
            "with OAUTHBEARER oauthTokenProvider names a function",
        ),
        (
            {**BEARER, "sasl__jaas__config": BEARER_LINE.replace("clientId", "unsecuredLoginX")},
            "unsecured tokens are not supported",
        ),
        (
            {**SASL, "sasl__mechanism": "AWS_MSK_IAM"},
            "AWS_MSK_IAM.*use OAUTHBEARER with oauthTokenProvider",
        ),
        (
            {**SASL, "sasl__mechanism": "GSSAPI"},
            "kafka.sasl.mechanism='GSSAPI': Kerberos is not supported",
        ),
        ({**SASL, "sasl__mechanism": "MD5"}, "kafka.sasl.mechanism='MD5': give PLAIN"),
        (PLAIN, "kafka.sasl.mechanism=PLAIN needs a user's name and password"),
        ({**PLAIN, "sasl__username": "a"}, "needs a user's name and password"),
        (
            {**PLAIN, "sasl__jaas__config": SCRAM_LINE},
            "ScramLoginModule, which does not fit kafka.sasl.mechanism=PLAIN",
        ),
        (
            {**SCRAM, "sasl__jaas__config": "nonsense p4ss'word"},
            "kafka.sasl.jaas.config is not of the form",
        ),
        (
            {**SCRAM, "sasl__jaas__config": SCRAM_LINE.replace("alice", 'ali"ce')},
            "kafka.sasl.jaas.config is not of the form",
        ),
        (
            {**SCRAM, "sasl__jaas__config": SCRAM_LINE.replace("Scram", "Krb5")},
            "Krb5LoginModule is unknown",
        ),
        (
            {**SCRAM, "sasl__jaas__config": SCRAM_LINE.replace(";", " tokenauth=true;")},
            "delegation tokens",
        ),
        (
            {**SCRAM, "sasl__jaas__config": "a.ScramLoginModule required;"},
            "give them in kafka.sasl.jaas.config",
        ),
    ],
)
def test_errors_name_the_option_and_never_the_secret(given: dict[str, str], says: str) -> None:
    with pytest.raises(SecurityError, match=says) as raised:
        parse(**given)
    assert PASSWORD not in str(raised.value)


def test_the_sources_options_include_the_security_options() -> None:
    given = {
        "kafka.bootstrap.servers": "a:1",
        "subscribe": "t",
        "kafka.security.protocol": "SASL_PLAINTEXT",
    }
    login = {
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "alice",
        "kafka.sasl.password": PASSWORD,
    }
    options = parse_source_options({**given, **login})
    assert (options.client.security.username, options.client.security.password) == (
        "alice",
        PASSWORD,
    )
    with pytest.raises(OptionError, match=r"kafka.sasl.mechanism is missing"):
        parse_source_options(given)


def test_client_credentials_by_options_and_by_jaas() -> None:
    url = {"sasl__oauthbearer__token__endpoint__url": "https://a/t"}
    names = "sasl__oauthbearer__client__credentials__client__"
    by_options = parse(
        **BEARER,
        **url,
        **{names + "id": "me", names + "secret": PASSWORD},
        sasl__oauthbearer__scope="all",
    ).tokens
    by_jaas = parse(**BEARER, **url, sasl__jaas__config=BEARER_LINE).tokens
    assert by_jaas == by_options._replace(extensions=(("logicalCluster", "lkc-1"),))
    assert (by_jaas.client_id, by_jaas.client_secret, by_jaas.scope) == ("me", PASSWORD, "all")
    assert PASSWORD not in repr(by_jaas)


def test_secrets_are_not_shown_but_travel_to_tasks() -> None:
    options = parse(
        security__protocol="SASL_SSL",
        ssl__keystore__certificate__chain="a certificate",
        ssl__keystore__key="a private key",
        ssl__key__password="key secret",
        sasl__mechanism="PLAIN",
        sasl__username="alice",
        sasl__password=PASSWORD,
    )
    shown = f"{options!r} {options}"
    assert "alice" in shown
    assert not any(secret in shown for secret in (PASSWORD, "a private key", "key secret"))
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    "line",
    [
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="al\\"ice" '
        'password="a\\\\b;c=d";',
        "kafkashaded.org.apache.kafka.common.security.plain.PlainLoginModule REQUIRED\n  "
        "username='al\"ice'\n  password='a\\\\b;c=d' ;",
        'PlainLoginModule required password="a\\\\b;c=d" username=\'al"ice\' serviceName=kafka',
    ],
)
def test_jaas_lines(line: str) -> None:
    assert parse_jaas(line, "PLAIN") == ('al"ice', "a\\b;c=d")


# --- TLS


def test_certificates_from_files_and_from_texts() -> None:
    assert ssl_context(SecurityOptions("SSL")).verify_mode == ssl.CERT_REQUIRED
    ca, own = TLS / "ca.pem", TLS / "client.pem"
    encrypted = {
        "certificate_file": str(TLS / "client-certificate.pem"),
        "key_file": str(TLS / "client-key-encrypted.pem"),
    }
    for options in (
        SecurityOptions("SSL", ca_file=str(ca), certificate_file=str(own)),
        SecurityOptions(
            "SSL", ca_pem=ca.read_text(), certificate_pem=own.read_text(), key_pem=own.read_text()
        ),
        SecurityOptions("SSL", ca_file=str(ca), **encrypted, key_password="secret"),
    ):
        context = ssl_context(options)
        assert context.check_hostname and [
            each["subject"][0][0][1] for each in context.get_ca_certs()
        ] == ["Barnabas test authority"]
    assert not ssl_context(SecurityOptions("SSL", check_hostname=False)).check_hostname


@pytest.mark.parametrize("password", [None, "wrong"])
def test_the_error_for_a_wrong_key_password(password: str | None) -> None:
    options = SecurityOptions(
        "SSL",
        certificate_file=str(TLS / "client-certificate.pem"),
        key_file=str(TLS / "client-key-encrypted.pem"),
        key_password=password,
    )
    with pytest.raises(
        SecurityError,
        match=r"kafka.ssl.keystore.location: kafka.ssl.key.password is missing or wrong",
    ):
        ssl_context(options)


def test_the_errors_for_invalid_certificate_files(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    with pytest.raises(
        SecurityError,
        match=r"kafka.ssl.truststore.location=.* is a Java key store.*keytool.*PKCS12",
    ):
        ssl_context(SecurityOptions("SSL", ca_file=str(store)))
    with pytest.raises(
        SecurityError, match=r"kafka.ssl.truststore.location=.*No such file.*on each machine"
    ):
        ssl_context(SecurityOptions("SSL", ca_file=str(tmp_path / "missing")))
    with pytest.raises(
        SecurityError, match=r"kafka.ssl.truststore.certificates: these are not certificates"
    ):
        ssl_context(
            SecurityOptions(
                "SSL", ca_pem="-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----"
            )
        )
    with pytest.raises(
        SecurityError, match=r"kafka.ssl.keystore.location: certificate and key do not fit"
    ):
        ssl_context(
            SecurityOptions(
                "SSL", certificate_file=str(TLS / "client.pem"), key_file=str(TLS / "server.pem")
            )
        )


# --- SASL


def test_plain() -> None:
    login = exchange(
        SecurityOptions("SASL_SSL", mechanism="PLAIN", username="tim", password="tanstaaftanstaaf")
    )
    assert isinstance(login, PlainExchange)
    assert login.first() == b"\0tim\0tanstaaftanstaaf"  # example in RFC 4616, section 4
    assert login.answer(b"") is None


NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = NONCE + "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SERVER_FIRST = f"r={SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def example() -> ScramExchange:
    return ScramExchange("sha256", "user", "pencil", NONCE)


def test_scram_as_in_rfc_7677() -> None:
    login = example()
    assert login.first() == f"n,,n=user,r={NONCE}".encode()
    assert (
        login.answer(SERVER_FIRST)
        == f"c=biws,r={SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    )
    assert login.answer(SERVER_FINAL) is None


def test_names_with_the_two_characters_that_mean_something() -> None:
    assert ScramExchange("sha512", "a=b,c", "x", "n0").first() == b"n,,n=a=3Db=2Cc,r=n0"


def test_nonces_differ() -> None:
    assert len({ScramExchange("sha256", "u", "p").first() for _ in range(10)}) == 10


@pytest.mark.parametrize(
    ("first", "says"),
    [
        (b"e=unknown-user", "the broker says 'unknown-user'"),
        (SERVER_FIRST.replace(b"i=4096", b"i=100"), "asks for 100 iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=2000000000"), "asks for 2000000000 iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=many"), "is not SCRAM"),
        (SERVER_FIRST.replace(b"r=rO", b"r=xO"), "nonce does not begin with the client's"),
        (
            f"r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode(),
            "nonce does not begin with the client's",
        ),
        (b"m=ext," + SERVER_FIRST, "is not SCRAM"),
        (SERVER_FIRST.replace(b"s=W", b"s=!"), "is not SCRAM"),
        (b"\xff", "is not SCRAM"),
        (b"", "is not SCRAM"),
    ],
)
def test_a_server_that_does_not_keep_to_it(first: bytes, says: str) -> None:
    with pytest.raises(AuthenticationError, match=says):
        example().answer(first)


@pytest.mark.parametrize(
    ("final", "says"),
    [
        (b"e=invalid-proof", "the broker says 'invalid-proof'"),
        (SERVER_FINAL.replace(b"6rri", b"7rri"), "does not prove that it has the password"),
        (b"v=", "does not prove that it has the password"),
        (b"", "does not prove that it has the password"),
        (b"v=!", "is not SCRAM"),
    ],
)
def test_a_server_that_cannot_prove_itself(final: bytes, says: str) -> None:
    login = example()
    login.answer(SERVER_FIRST)
    with pytest.raises(AuthenticationError, match=says):
        login.answer(final)
