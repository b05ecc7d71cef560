"""The Spark connector's client against the real daemon: logins with tokens, TLS versions and cipher
suites, PKCS#12 stores.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from helpers.tokens import AUDIENCE, ISSUER, Issuer

from barnabas import LocalBroker
from barnabas.client.cluster_reader import ClientError, ClusterReader
from barnabas.spark_connector.read.options import parse_source_options

pytestmark = pytest.mark.e2e


def partitions(broker: LocalBroker, **options: str) -> int:
    """The topic's number of partitions, as the client of a source requests it. In the parameters'
    names, __ replaces the dots of the options.
    """
    given = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "kafka.default.api.timeout.ms": "500",
        "subscribe": "t",
        **{name.replace("__", "."): value for name, value in options.items()},
    }
    with ClusterReader(parse_source_options(given).client) as client:
        return len(client.partitions_of(["t"]))


# --- tokens


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture(scope="module")
def token_broker(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    """A broker that only accepts logins by OAUTHBEARER."""
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": issuer.write(tmp_path_factory.mktemp("k") / "jwks"),
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "connection.failed.authentication.delay.ms": "1",
        "num.partitions": "3",
    }
    with LocalBroker(settings=settings) as broker:
        yield broker


BEARER = {
    "kafka__security__protocol": "SASL_PLAINTEXT",
    "kafka__sasl__mechanism": "OAUTHBEARER",
    "kafka__allow__auto__create__topics": "true",
}


def make_topic(broker: LocalBroker, **options: str) -> None:
    """Create the topic "t" with the client of a source."""
    given = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "subscribe": "t",
        **{name.replace("__", "."): value for name, value in options.items()},
    }
    with ClusterReader(parse_source_options(given).client) as client:
        client.partitions_of(["t"], create=True)


def test_tokens_of_a_file_and_of_a_function(
    token_broker: LocalBroker, issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "token"
    path.write_text(issuer.token("alice"))
    by_file = {"kafka__sasl__oauthbearer__token__endpoint__url": path.as_uri()}
    make_topic(token_broker, **BEARER, **by_file)
    assert partitions(token_broker, **BEARER, **by_file) == 3
    (tmp_path / "provides_tokens.py").write_text(
        f"def token():\n    return open({os.fspath(path)!r}).read()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        assert partitions(token_broker, **BEARER, oauthTokenProvider="provides_tokens:token") == 3
    finally:
        sys.modules.pop("provides_tokens", None)
    assert any("is user 'alice', by OAUTHBEARER" in line for line in token_broker.output)


@pytest.mark.parametrize(
    "claims", [{"exp": 1_000}, {"aud": "another"}, {"iss": "another"}], ids=str
)
def test_a_token_that_the_broker_refuses_is_an_error_without_the_token(
    token_broker: LocalBroker, issuer: Issuer, tmp_path: Path, claims: dict[str, object]
) -> None:
    (tmp_path / "token").write_text(issuer.token("alice", **claims))
    with pytest.raises(ClientError, match=r"refuses this client by OAUTHBEARER: ") as caught:
        partitions(
            token_broker,
            **BEARER,
            kafka__sasl__oauthbearer__token__endpoint__url=(tmp_path / "token").as_uri(),
        )
    assert (tmp_path / "token").read_text() not in str(caught.value)


def test_a_missing_token_file_is_an_error(token_broker: LocalBroker, tmp_path: Path) -> None:
    with pytest.raises(ClientError, match=r"there is no token for the login: .*cannot be read"):
        partitions(
            token_broker,
            **BEARER,
            kafka__sasl__oauthbearer__token__endpoint__url=(tmp_path / "none").as_uri(),
        )


# --- TLS


@pytest.fixture(scope="module")
def tls_1_2_broker() -> Iterator[LocalBroker]:
    """A broker that accepts only TLS 1.2, and few cipher suites."""
    settings = {
        "ssl.enabled.protocols": "TLSv1.2",
        "ssl.cipher.suites": "ECDHE-ECDSA-AES256-GCM-SHA384,ECDHE-RSA-AES256-GCM-SHA384",
        "num.partitions": "3",
    }
    with LocalBroker(tls=True, settings=settings) as broker:
        broker.create_topic("t", 3)
        yield broker


def test_the_client_offers_only_the_tls_versions_and_cipher_suites_of_its_settings(
    tls_1_2_broker: LocalBroker,
) -> None:
    ssl = {
        "kafka__security__protocol": "SSL",
        "kafka__ssl__truststore__location": str(tls_1_2_broker.ca_file),
    }
    java = ",".join(f"TLS_ECDHE_{kind}_WITH_AES_{{}}" for kind in ("RSA", "ECDSA"))
    assert partitions(tls_1_2_broker, **ssl) == 3
    assert partitions(tls_1_2_broker, **ssl, kafka__ssl__protocol="TLSv1.2") == 3
    suites = java.replace("{}", "256_GCM_SHA384")
    assert partitions(tls_1_2_broker, **ssl, kafka__ssl__cipher__suites=suites) == 3
    for refused in (
        {"kafka__ssl__enabled__protocols": "TLSv1.3"},
        {"kafka__ssl__cipher__suites": java.replace("{}", "128_GCM_SHA256")},
    ):
        with pytest.raises(ClientError, match=r"refuses TLS|TLS"):
            partitions(tls_1_2_broker, **ssl, **refused)


def test_a_trust_store_of_pkcs_12(tls_1_2_broker: LocalBroker, tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

    authority = x509.load_pem_x509_certificate(Path(tls_1_2_broker.ca_file).read_bytes())
    (tmp_path / "trust.p12").write_bytes(
        pkcs12.serialize_key_and_certificates(
            None, None, None, [authority], BestAvailableEncryption(b"secret")
        )
    )
    store = {
        "kafka__security__protocol": "SSL",
        "kafka__ssl__truststore__location": str(tmp_path / "trust.p12"),
        "kafka__ssl__truststore__type": "PKCS12",
    }
    assert partitions(tls_1_2_broker, **store, kafka__ssl__truststore__password="secret") == 3
    with pytest.raises(ClientError, match=r"cannot be read .*check kafka.ssl.truststore.password"):
        partitions(tls_1_2_broker, **store, kafka__ssl__truststore__password="wrong")
