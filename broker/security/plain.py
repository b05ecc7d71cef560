"""PLAIN's server side: the client sends one message with a user's name and password (RFC 4616)."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from barnabas.broker.security.scram import AuthenticationError, shown


class PlainServer:
    """The server's side of one exchange. passwords: the passwords by user."""

    lifetime_ms: int | None = None
    refusal = ""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords
        self.user = ""
        self.is_complete = False

    def evaluate(self, token: bytes) -> bytes:
        """Check the user's password. Gives: the server's response, which is empty. Raises:
        AuthenticationError.
        """
        try:
            parts = token.decode().split("\0")
        except UnicodeDecodeError as error:
            raise AuthenticationError("a message that is not text") from error
        if len(parts) != 3 or not parts[1] or not parts[2]:
            raise AuthenticationError("a message that is not [user], NUL, user, NUL, password")
        authorization, self.user, password = parts
        expected = self._passwords.get(self.user)
        # Compare digests, which have equal lengths, even if the user is unknown. The duration then
        # reveals neither the password nor whether the user exists.
        is_right = hmac.compare_digest(_digest(password), _digest(expected or ""))
        if expected is None or not is_right:
            name = shown(self.user)
            raise AuthenticationError(f"unknown user, or wrong password, for '{name}'")
        if authorization not in ("", self.user):
            raise AuthenticationError(f"user '{self.user}' may not act for another user")
        self.is_complete = True
        return b""


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
