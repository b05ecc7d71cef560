"""The server side of SCRAM, tested with RFC 5802 and the example of RFC 7677."""

from __future__ import annotations

import base64

import pytest

from barnabas.broker.security.scram import (
    LONGEST_MESSAGE,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    AuthenticationError,
    ScramServer,
    credential_of,
    salted,
)
from barnabas.broker.security.stored import ScramCredential
from barnabas.broker.settings.features import ScramNonces, release_of

# the example of RFC 7677, section 3
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_NONCE, SERVER_NONCE = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
CLIENT_FIRST = f"n,,n=user,r={CLIENT_NONCE}"
SERVER_FIRST = f"r={CLIENT_NONCE}{SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
WITHOUT_PROOF = f"c=biws,r={CLIENT_NONCE}{SERVER_NONCE}"
PROOF = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
SERVER_FINAL = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
PENCIL = credential_of(SCRAM_SHA_256, salted(SCRAM_SHA_256, "pencil", SALT, 4096), SALT, 4096)


def server(user: str = "user", nonces: ScramNonces = "exact") -> ScramServer:
    """Return the server's side of an exchange. It knows one user."""

    def credential(name: str) -> ScramCredential | None:
        return PENCIL if name == user else None

    return ScramServer(SCRAM_SHA_256, credential, SERVER_NONCE, nonces)


def test_the_example_exchange_of_rfc_7677_succeeds() -> None:
    exchange = server()
    assert exchange.evaluate(CLIENT_FIRST.encode()).decode() == SERVER_FIRST
    assert not exchange.is_complete
    assert exchange.evaluate(f"{WITHOUT_PROOF},p={PROOF}".encode()).decode() == SERVER_FINAL
    assert (exchange.is_complete, exchange.user) == (True, "user")
    with pytest.raises(AuthenticationError, match="after the last"):
        exchange.evaluate(b"")


@pytest.mark.parametrize(
    "first",
    ["", "user", "n,n=user,r=x", "y,,n=user,r=x", "p=tls-unique,,n=user,r=x", "n,,n=,r=x",
     "n,,r=x", "n,,n=user", "n,,n=user,r=", "n,,r=x,n=user", "n,,n=user,r=a b", "n,,n=user,r=x\n",
     "n,,n=us=er,r=x", "n,,n=user,r=x,what", "n,,n=user,r=x,a1=b", "n,a=other,n=user,r=x",
     "n,,n=nobody,r=x"],
)  # fmt: skip
def test_a_first_message_that_is_refused(first: str) -> None:
    with pytest.raises(AuthenticationError):
        server().evaluate(first.encode())


@pytest.mark.parametrize("first", ["n,,n={0},r=x", "n,a=other,n={0},r=x"])
def test_a_long_user_name_is_truncated_in_the_error(first: str) -> None:
    with pytest.raises(AuthenticationError, match=r"'b{100}[.]{3}'") as caught:
        server().evaluate(first.format("b" * 4000).encode())
    assert len(str(caught.value)) < 200


def test_a_message_above_the_length_limit_is_refused() -> None:
    begin = b"n,,n=user,r="
    with pytest.raises(AuthenticationError, match="more than 4096 bytes"):
        server().evaluate(begin + b"x" * (LONGEST_MESSAGE + 1 - len(begin)))
    assert server().evaluate(begin + b"x" * (LONGEST_MESSAGE - len(begin)))


@pytest.mark.parametrize(
    "first", ["n,a=user,n=user,r=x", "n,,m=more,n=user,r=x", "n,,n=user,r=x,what=this,a=b"]
)
def test_a_first_message_with_more_in_it(first: str) -> None:
    assert server().evaluate(first.encode()).startswith(b"r=x" + SERVER_NONCE.encode())


@pytest.mark.parametrize(
    "final",
    [
        "",
        CLIENT_FIRST,
        WITHOUT_PROOF,
        f"{WITHOUT_PROOF},p=",
        f"{WITHOUT_PROOF},p=!?",
        f"{WITHOUT_PROOF},p=abc",  # is not base64
        f"{WITHOUT_PROOF},p={base64.b64encode(bytes(32)).decode()}",
        f"{WITHOUT_PROOF},p={base64.b64encode(bytes(16)).decode()}",
        f"{WITHOUT_PROOF},p={base64.b64encode(bytes(64)).decode()}",
        f"{WITHOUT_PROOF},ext=1,p={PROOF}",
        f"c=biws,r={CLIENT_NONCE},p={PROOF}",
        f"c=biws,r=x{CLIENT_NONCE}{SERVER_NONCE},p={PROOF}",
        f"c=eSws,r={CLIENT_NONCE}{SERVER_NONCE},p={PROOF}",  # binds another channel
        f"c=,r={CLIENT_NONCE}{SERVER_NONCE},p={PROOF}",
    ],
)
def test_invalid_final_messages_are_refused(final: str) -> None:
    exchange = server()
    exchange.evaluate(CLIENT_FIRST.encode())
    with pytest.raises(AuthenticationError):
        exchange.evaluate(final.encode())
    assert not exchange.is_complete


def proven(without_proof: str) -> bytes:
    """Return a final message with the right proof, from a client that knows the password."""
    client_key = SCRAM_SHA_256.digest(salted(SCRAM_SHA_256, "pencil", SALT, 4096), b"Client Key")
    messages = f"{CLIENT_FIRST.removeprefix('n,,')},{SERVER_FIRST},{without_proof}"
    signature = SCRAM_SHA_256.digest(PENCIL.stored_key, messages.encode())
    proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
    return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


@pytest.mark.parametrize(
    ("without_proof", "says"),
    [
        (WITHOUT_PROOF, ""),
        (f"c=eSws,r={CLIENT_NONCE}{SERVER_NONCE}", "binds another channel"),  # y,,
        (f"c=,r={CLIENT_NONCE}{SERVER_NONCE}", "binds another channel"),
        (f"c=biws,r={CLIENT_NONCE}", "another nonce"),
        (f"c=biws,r={SERVER_NONCE}", "another nonce"),
        (f"c=biws,r={CLIENT_NONCE}{SERVER_NONCE}x", "another nonce"),
    ],
)
def test_a_right_proof_of_another_exchange_is_refused(without_proof: str, says: str) -> None:
    exchange = server()
    exchange.evaluate(CLIENT_FIRST.encode())
    if not says:
        assert exchange.evaluate(proven(without_proof)).decode() == SERVER_FINAL
        return
    with pytest.raises(AuthenticationError, match=says):
        exchange.evaluate(proven(without_proof))
    assert not exchange.is_complete


TWICE = f"c=biws,r={CLIENT_NONCE}{CLIENT_NONCE}{SERVER_NONCE}"
BEHIND_OTHERS = f"c=biws,r=x{CLIENT_NONCE}{SERVER_NONCE}"


@pytest.mark.parametrize("release", ["", "3.9", "4.3"])
@pytest.mark.parametrize(
    ("without_proof", "releases"), [(TWICE, ("", "3.9")), (BEHIND_OTHERS, ("3.9",))]
)
def test_the_nonce_of_librdkafka_before_2_6_1(
    without_proof: str, releases: tuple[str, ...], release: str
) -> None:
    """Those versions send the client's nonce twice. Apache Kafka 3.8.1 to 3.9 accept anything
    before the nonce, 4.x nothing (CVE-2024-56128; librdkafka pull request 4895).
    """
    exchange = server(nonces=release_of(release).scram_nonces)
    exchange.evaluate(CLIENT_FIRST.encode())
    if release in releases:
        exchange.evaluate(proven(without_proof))
        assert exchange.is_complete
        return
    with pytest.raises(AuthenticationError) as caught:
        exchange.evaluate(proven(without_proof))
    names_version = without_proof == TWICE
    assert ("librdkafka before 2.6.1" in str(caught.value)) is names_version
    assert ("librdkafka before 2.6.1" in caught.value.answer) is names_version
    assert not exchange.is_complete


@pytest.mark.parametrize("release", ["", "3.9", "4.3"])
def test_a_repeated_nonce_does_not_replace_the_proof(release: str) -> None:
    exchange = server(nonces=release_of(release).scram_nonces)
    exchange.evaluate(CLIENT_FIRST.encode())
    wrong = base64.b64encode(bytes(32)).decode()
    with pytest.raises(AuthenticationError):
        exchange.evaluate(f"{TWICE},p={wrong}".encode())
    assert not exchange.is_complete


def test_the_right_proof_of_another_password_is_refused() -> None:
    other = credential_of(SCRAM_SHA_256, salted(SCRAM_SHA_256, "other", SALT, 4096), SALT, 4096)
    exchange = ScramServer(SCRAM_SHA_256, lambda _: other, SERVER_NONCE)
    exchange.evaluate(CLIENT_FIRST.encode())
    with pytest.raises(AuthenticationError, match="wrong password for user 'user'"):
        exchange.evaluate(f"{WITHOUT_PROOF},p={PROOF}".encode())


def test_commas_and_equals_signs_of_a_name_are_escaped() -> None:
    exchange = ScramServer(SCRAM_SHA_256, lambda _: PENCIL, SERVER_NONCE)
    exchange.evaluate(b"n,,n=a=2Cb=3Dc,r=x")
    assert exchange.user == "a,b=c"


@pytest.mark.parametrize(("said", "user"), [("=3D2C", "=2C"), ("=3D3D", "=3D"), ("=3D=2C", "=,")])
def test_a_name_is_unescaped_once(said: str, user: str) -> None:
    """If a name were unescaped twice, a user could log in under another user's name."""
    exchange = ScramServer(SCRAM_SHA_256, lambda _: PENCIL, SERVER_NONCE)
    exchange.evaluate(f"n,,n=a{said},r=x".encode())
    assert exchange.user == f"a{user}"


def test_the_hash_is_the_mechanisms() -> None:
    credential = credential_of(SCRAM_SHA_512, b"salted", b"salt", 4096)
    assert (len(credential.stored_key), len(PENCIL.stored_key)) == (64, 32)
