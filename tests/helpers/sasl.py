"""A broker that requires SASL, and the client's side of the authentication."""

from __future__ import annotations

import base64
import hashlib
import hmac
from pathlib import Path
from typing import Any

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest
from helpers.core_host import CoreHost

USER, PASSWORD = "alice", "her-secret"
REAUTH_MS = 3000
JAAS = f'a.LoginModule required user_{USER}="{PASSWORD}" user_bob="{PASSWORD}";'


def sasl_host(directory: Path, **more: str) -> CoreHost:
    """A broker whose SCRAM-SHA-512 sessions end after REAUTH_MS. The users USER and bob have the
    same password.
    """
    settings = {
        "listeners": "SASL://127.0.0.1:9092",
        "listener.security.protocol.map": "SASL:SASL_PLAINTEXT",
        "listener.name.sasl.plain.sasl.jaas.config": JAAS,
        "listener.name.sasl.scram-sha-512.connections.max.reauth.ms": str(REAUTH_MS),
        **more,
    }
    return CoreHost(directory, users={USER: PASSWORD, "bob": PASSWORD}, **settings)


def plain_token(user: str, password: str) -> bytes:
    return f"\0{user}\0{password}".encode()


def scram_log_in(
    host: CoreHost,
    connection: int,
    *,
    user: str = USER,
    expects_answer: bool = True,
    before_nonce: str = "",
) -> Any:
    """Log in with SCRAM-SHA-512: send the handshake and the two messages. Return the last
    response. before_nonce: a text in front of the nonce of the final message.
    """
    answer = host.call(connection, SaslHandshakeRequest("SCRAM-SHA-512"), 1)
    assert answer.error_code == Code.NONE
    bare = f"n={user},r=nonce"
    first = host.call(connection, SaslAuthenticateRequest(f"n,,{bare}".encode()), 2)
    server_first = bytes(first.auth_bytes).decode()
    final = SaslAuthenticateRequest(final_message(bare, server_first, before_nonce=before_nonce))
    if expects_answer:
        return host.call(connection, final, 2)
    host.ask(connection, final, 2)
    return None


def final_message(
    bare: str, server_first: str, password: str = PASSWORD, *, before_nonce: str = ""
) -> bytes:
    """The client's last message of a SCRAM login, as in RFC 5802."""
    parts = dict(part.split("=", 1) for part in server_first.split(","))
    salted = hashlib.pbkdf2_hmac(
        "sha512", password.encode(), base64.b64decode(parts["s"]), int(parts["i"])
    )
    without_proof = f"c=biws,r={before_nonce}{parts['r']}"
    client_key = hmac.digest(salted, b"Client Key", "sha512")
    stored_key = hashlib.sha512(client_key).digest()
    signature = hmac.digest(stored_key, f"{bare},{server_first},{without_proof}".encode(), "sha512")
    proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
    return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()
