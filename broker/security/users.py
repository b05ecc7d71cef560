"""The users, and where their passwords and credentials come from.

    source                                          PLAIN   SCRAM
    barnabas.users.file                             yes     yes
    listener.name.NAME.plain.sasl.jaas.config       yes     no
    AlterUserScramCredentials (KIP-554)             no      yes, and overrides the file

A users file has a line for each user: the name, a colon, the password. Empty lines and lines that
begin with # are ignored. Lines end with LF, CR LF or CR. ASCII blanks around a name and a password
are ignored. Other blanks are a part of the name or password, as they are for clients.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from barnabas.broker.java_text import trimmed
from barnabas.broker.security.scram import (
    FEWEST_ITERATIONS,
    Mechanism,
    credential_of,
    salted,
)
from barnabas.broker.security.stored import ScramCredential

_LINE_END = re.compile(r"\r\n|\n|\r")


class UsersFileError(ValueError):
    """A users file cannot be read. The text names the line, and shows no password."""


def parse_users(text: str) -> dict[str, str]:
    """The passwords in the text of a users file, by user. Raises: UsersFileError."""
    passwords: dict[str, str] = {}
    for number, line in enumerate(_LINE_END.split(text), 1):
        if not trimmed(line) or trimmed(line).startswith("#"):
            continue
        name, colon, password = (trimmed(part) for part in line.partition(":"))
        if not (colon and name and password):
            raise UsersFileError(f"line {number} must have the form NAME:PASSWORD")
        if name in passwords:
            raise UsersFileError(f"line {number} names a user for the second time")
        passwords[name] = password
    return passwords


Credentials = dict[tuple[str, int], ScramCredential]
"""SCRAM credentials by (user, mechanism's number)."""


def make_credentials(
    passwords: Mapping[str, str],
    mechanisms: Iterable[Mechanism],
    made: Credentials,
    new_salt: Callable[[], bytes],
) -> None:
    """Salt and iterate each password for each mechanism, and add the credentials to `made`, except
    those that `made` already contains.

    Each credential takes some milliseconds of CPU time, during which the interpreter's lock is
    released, so the function may run in a thread.
    """
    for user, password in passwords.items():
        for mechanism in mechanisms:
            key = (user, mechanism.number)
            if key not in made:
                salt, iterations = new_salt(), FEWEST_ITERATIONS
                salted_password = salted(mechanism, password, salt, iterations)
                made.setdefault(key, credential_of(mechanism, salted_password, salt, iterations))


class Users:
    """Passwords for PLAIN and credentials for SCRAM.

    Takes: file_passwords, the passwords in the users file; plain_passwords, the passwords in JAAS
           texts; kept, the credentials in the metadata journal; made, the credentials that were
           already made from the users file: each missing one is made at its first use; new_salt,
           a source of random bytes.
    """

    def __init__(
        self,
        file_passwords: Mapping[str, str],
        plain_passwords: Mapping[str, str],
        kept: Mapping[tuple[str, int], ScramCredential],
        made: Credentials,
        new_salt: Callable[[], bytes],
    ) -> None:
        """Takes: file_passwords, the passwords in the users file; plain_passwords, the passwords of
        the
               listener; kept, the SCRAM credentials in the metadata; made, the credentials that
               were computed from passwords.
        """
        self.passwords = {**file_passwords, **plain_passwords}
        self._file_passwords, self._kept, self._new_salt = file_passwords, kept, new_salt
        self._made = made

    def credential(self, mechanism: Mechanism, user: str) -> ScramCredential | None:
        """The SCRAM credential of a user; None for an unknown user."""
        key = (user, mechanism.number)
        credential = self._kept.get(key) or self._made.get(key)
        if credential is None and user in self._file_passwords:
            own = {user: self._file_passwords[user]}
            make_credentials(own, (mechanism,), self._made, self._new_salt)
            credential = self._made[key]
        return credential
