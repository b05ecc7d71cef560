"""A token issuer for tests, with its keys, their JWKS, and signed tokens."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

AUDIENCE, ISSUER = "barnabas", "https://issuer.example"


class Issuer:
    """An issuer with two keys, whose ids are `rsa` and `ec`."""

    def __init__(self) -> None:
        self.keys: dict[str, Any] = {
            "rsa": rsa.generate_private_key(65537, 2048),
            "ec": ec.generate_private_key(ec.SECP256R1()),
        }

    def jwks(self) -> dict[str, Any]:
        """Its public keys."""
        rows = [
            RSAAlgorithm.to_jwk(self.keys["rsa"].public_key(), as_dict=True),
            ECAlgorithm.to_jwk(self.keys["ec"].public_key(), as_dict=True),
        ]
        named = zip(self.keys, rows, strict=True)
        return {"keys": [{**row, "kid": name, "use": "sig"} for name, row in named]}

    def write(self, path: Path) -> str:
        """Write the public keys to a file, and return its URL."""
        path.write_text(json.dumps(self.jwks()))
        return path.as_uri()

    def token(self, user: object = "alice", *, key: str = "rsa", **claims: object) -> str:
        """A token that is valid for a minute. A claim whose value is None is left out."""
        now = int(time.time())
        values: dict[str, object] = {
            "sub": user,
            "iss": ISSUER,
            "aud": AUDIENCE,
            "iat": now,
            "exp": now + 60,
        } | claims
        values = {name: value for name, value in values.items() if value is not None}
        algorithm = {"rsa": "RS256", "ec": "ES256"}[key]
        return jwt.encode(values, self.keys[key], algorithm, headers={"kid": key})


def bearer_message(token: str, before: str = "n,,") -> bytes:
    """A client's message with a token (RFC 7628)."""
    return f"{before}\x01auth=Bearer {token}\x01\x01".encode()
