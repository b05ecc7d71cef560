"""Users from each source that can define them."""

from __future__ import annotations

import pytest

from barnabas.broker.security.scram import (
    FEWEST_ITERATIONS,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    credential_of,
    salted,
)
from barnabas.broker.security.users import (
    Credentials,
    Users,
    UsersFileError,
    make_credentials,
    parse_users,
)


def test_a_users_file() -> None:
    text = "# who may come in\n\nalice:her:secret\n bob : his \n"
    assert parse_users(text) == {"alice": "her:secret", "bob": "his"}


@pytest.mark.parametrize("line", ["alice", "alice:", ":secret", "alice: "])
def test_an_invalid_line_of_a_users_file_is_an_error_without_the_password(line: str) -> None:
    with pytest.raises(UsersFileError, match="line 2") as error:
        parse_users(f"bob:his\n{line}")
    assert "secret" not in str(error.value)


def test_a_user_named_twice() -> None:
    with pytest.raises(UsersFileError, match="line 2 names a user for the second time"):
        parse_users("bob:his\nbob:other")


def test_users_of_the_file_may_use_every_mechanism_and_others_only_one() -> None:
    """alice is in the users file (all mechanisms), bob in the JAAS configuration (PLAIN), and carol
    has a stored SCRAM-SHA-256 credential.
    """
    kept = {("carol", 1): credential_of(SCRAM_SHA_256, b"salted", b"salt", 5000)}
    users = Users({"alice": "her"}, {"bob": "his"}, kept, {}, lambda: b"salt")
    assert users.passwords == {"alice": "her", "bob": "his"}
    credential = users.credential(SCRAM_SHA_512, "alice")
    password = salted(SCRAM_SHA_512, "her", b"salt", FEWEST_ITERATIONS)
    assert credential == credential_of(SCRAM_SHA_512, password, b"salt", FEWEST_ITERATIONS)
    assert users.credential(SCRAM_SHA_512, "alice") is credential
    assert users.credential(SCRAM_SHA_256, "bob") is None
    assert users.credential(SCRAM_SHA_256, "carol") == kept["carol", 1]
    assert users.credential(SCRAM_SHA_512, "carol") is None


def test_credentials_computed_in_advance_are_used() -> None:
    made: Credentials = {}
    passwords = {"alice": "her", "bob": "his"}
    make_credentials(passwords, (SCRAM_SHA_256, SCRAM_SHA_512), made, lambda: b"salt")
    assert made.keys() == {(user, number) for user in passwords for number in (1, 2)}
    users = Users(passwords, {}, {}, made, lambda: b"never asked for")
    credential = users.credential(SCRAM_SHA_256, "bob")
    assert credential is made["bob", 1]
    password = salted(SCRAM_SHA_256, "his", b"salt", FEWEST_ITERATIONS)
    assert credential == credential_of(SCRAM_SHA_256, password, b"salt", FEWEST_ITERATIONS)


def test_a_stored_credential_overrides_the_users_file() -> None:
    kept = {}
    users = Users({"alice": "her"}, {}, kept, {}, lambda: b"salt")
    assert users.credential(SCRAM_SHA_256, "alice") is not None
    kept["alice", 1] = credential_of(SCRAM_SHA_256, b"new", b"salt", 5000)
    assert users.credential(SCRAM_SHA_256, "alice") == kept["alice", 1]
