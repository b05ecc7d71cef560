"""The server side of PLAIN (RFC 4616)."""

from __future__ import annotations

import pytest

from barnabas.broker.security.plain import PlainServer
from barnabas.broker.security.scram import AuthenticationError

PASSWORDS = {"alice": "secret", "bob": "öäü"}


@pytest.mark.parametrize(
    ("token", "user"),
    [("\0alice\0secret", "alice"), ("alice\0alice\0secret", "alice"), ("\0bob\0öäü", "bob")],
)
def test_the_right_password_is_accepted(token: str, user: str) -> None:
    server = PlainServer(PASSWORDS)
    assert server.evaluate(token.encode()) == b""
    assert (server.is_complete, server.user) == (True, user)


@pytest.mark.parametrize(
    "token",
    [b"", b"alice", b"alice\0secret", b"\0alice\0secret\0", b"\0\0", b"\0alice\0", b"\0\0secret",
     b"\0alice\0Secret", b"\0alice\0secret ", b"\0ALICE\0secret", b"\0mallory\0secret",
     b"\0mallory\0", b"bob\0alice\0secret", b"\0\xff\0secret"],
)  # fmt: skip
def test_malformed_tokens_and_wrong_passwords_are_refused(token: bytes) -> None:
    server = PlainServer(PASSWORDS)
    with pytest.raises(AuthenticationError) as error:
        server.evaluate(token)
    assert not server.is_complete
    assert "secret" not in str(error.value)
