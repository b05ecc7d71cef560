"""The users that clients may be, and what shows it.

    source                                          PLAIN   SCRAM
    barnabas.users.file                             yes     yes
    listener.name.NAME.plain.sasl.jaas.config       yes     no
    AlterUserScramCredentials (KIP-554)             no      yes, and goes before the file

A users file has a line for each: the name, a colon, the password. Lines that are empty or begin
with # count for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from barnabas.broker.metadata import ScramCredential
from barnabas.broker.security.scram import (
    FEWEST_ITERATIONS,
    Mechanism,
    credential_of,
    salted,
)


class UsersFileError(ValueError):
    """A users file cannot be read; the text says which line, and shows no password."""


def parse_users(text: str) -> dict[str, str]:
    """Passwords by user. Raises: UsersFileError."""
    passwords: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, colon, password = line.partition(":")
        if not (colon and name.strip() and password.strip()):
            raise UsersFileError(f"line {number} must have the form NAME:PASSWORD")
        if name.strip() in passwords:
            raise UsersFileError(f"line {number} names a user for the second time")
        passwords[name.strip()] = password.strip()
    return passwords


class Users:
    """Passwords for PLAIN and credentials for SCRAM.

    Takes: file_passwords, of the users file; plain_passwords, of the JAAS texts; kept, the
           credentials of the metadata journal, by (user, mechanism's number); new_salt.
    """

    def __init__(
        self,
        file_passwords: Mapping[str, str],
        plain_passwords: Mapping[str, str],
        kept: Mapping[tuple[str, int], ScramCredential],
        new_salt: Callable[[], bytes],
    ) -> None:
        self.passwords = {**file_passwords, **plain_passwords}
        self._file_passwords, self._kept, self._new_salt = file_passwords, kept, new_salt
        self._made: dict[tuple[str, int], ScramCredential] = {}

    def credential(self, mechanism: Mechanism, user: str) -> ScramCredential | None:
        """What shows that somebody is that user; None: there is no such user."""
        key = (user, mechanism.number)
        credential = self._kept.get(key) or self._made.get(key)
        if credential is None and user in self._file_passwords:
            salt, iterations = self._new_salt(), FEWEST_ITERATIONS
            password = salted(mechanism, self._file_passwords[user], salt, iterations)
            credential = self._made[key] = credential_of(mechanism, password, salt, iterations)
        return credential
