"""Describing and altering SCRAM users (KIP-554). The expected codes are those of Apache Kafka
3.9.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.admin_host import AdminHost

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from barnabas.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)

SHA_256, SHA_512 = 1, 2


@pytest.fixture
def host(tmp_path: Path) -> Iterator[AdminHost]:
    host = AdminHost(tmp_path)
    yield host
    host.close()


def put(
    name: str, mechanism: int = SHA_256, iterations: int = 4096, password: bytes = b"salted"
) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(name, mechanism, iterations, b"salt", password)


def drop(name: str, mechanism: int = SHA_256) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name, mechanism)


def alter(host: AdminHost, *changes: Any) -> dict[str, int]:
    request = AlterUserScramCredentialsRequest(
        [change for change in changes if isinstance(change, ScramCredentialDeletion)],
        [change for change in changes if isinstance(change, ScramCredentialUpsertion)],
    )
    rows = host.call(request, 0).results
    assert len({row.user for row in rows}) == len(rows)
    return {row.user: row.error_code for row in rows}


def described(host: AdminHost, *names: str) -> dict[str, tuple[int, list[tuple[int, int]]]]:
    users = [UserName(name) for name in names] if names else None
    return {
        row.user: (
            row.error_code,
            [(info.mechanism, info.iterations) for info in row.credential_infos],
        )
        for row in host.call(DescribeUserScramCredentialsRequest(users), 0).results
    }


def test_users_are_added_changed_removed_and_kept_over_restarts(host: AdminHost) -> None:
    assert alter(host, put("a"), put("b", SHA_512, 5000)) == {"a": 0, "b": 0}
    assert alter(host, put("a", SHA_512, 6000)) == {"a": 0}
    expected = {"a": (0, [(SHA_256, 4096), (SHA_512, 6000)]), "b": (0, [(SHA_512, 5000)])}
    assert described(host) == expected
    host.restart()
    assert described(host) == expected
    assert alter(host, drop("a"), put("b", SHA_512, 7000)) == {"a": 0, "b": 0}
    assert described(host, "a", "b") == {"a": (0, [(SHA_512, 6000)]), "b": (0, [(SHA_512, 7000)])}
    assert alter(host, drop("a", SHA_512)) == {"a": 0}
    host.restart()
    assert described(host, "a") == {"a": (Code.RESOURCE_NOT_FOUND, [])}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (put("u", iterations=4095), Code.UNACCEPTABLE_CREDENTIAL),
        (put("u", iterations=4096), Code.NONE),
        (put("u", iterations=16384), Code.NONE),
        (put("u", iterations=16385), Code.UNACCEPTABLE_CREDENTIAL),
        (put("u", iterations=-1), Code.UNACCEPTABLE_CREDENTIAL),
        (put("u", password=b""), Code.UNACCEPTABLE_CREDENTIAL),
        (put("u", mechanism=0), Code.UNSUPPORTED_SASL_MECHANISM),
        (put("u", mechanism=3), Code.UNSUPPORTED_SASL_MECHANISM),
        (drop("u", mechanism=0), Code.UNSUPPORTED_SASL_MECHANISM),
        (put(""), Code.UNACCEPTABLE_CREDENTIAL),
        (drop(""), Code.UNACCEPTABLE_CREDENTIAL),
        (drop("", mechanism=0), Code.UNACCEPTABLE_CREDENTIAL),
        (drop("u"), Code.RESOURCE_NOT_FOUND),
    ],
)
def test_invalid_changes_of_credentials_are_refused(
    host: AdminHost, change: Any, code: Code
) -> None:
    assert alter(host, change) == {change.name: code}
    is_there = code is Code.NONE
    assert (described(host, "u")["u"][0] == Code.NONE) == is_there


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ((put("u"), put("u")), Code.DUPLICATE_RESOURCE),
        ((put("u"), put("u", SHA_512)), Code.DUPLICATE_RESOURCE),
        ((drop("old"), drop("old")), Code.DUPLICATE_RESOURCE),
        ((drop("old"), put("old")), Code.DUPLICATE_RESOURCE),
        ((put("u", iterations=1), put("u")), Code.UNACCEPTABLE_CREDENTIAL),
    ],
)
def test_a_user_named_twice_is_not_changed_and_others_are(
    host: AdminHost, changes: tuple[Any, ...], code: Code
) -> None:
    assert alter(host, put("old"), put("gone")) == {"old": 0, "gone": 0}
    codes = alter(host, *changes, put("beside"), drop("gone"))
    assert codes == {changes[0].name: code, "beside": 0, "gone": 0}
    assert set(described(host)) == {"old", "beside"}


def test_a_user_named_twice_in_a_description_is_an_error(host: AdminHost) -> None:
    alter(host, put("u"))
    answer = described(host, "u", "u", "none", "none", "other")
    assert answer == {
        "u": (Code.DUPLICATE_RESOURCE, []),
        "none": (Code.DUPLICATE_RESOURCE, []),
        "other": (Code.RESOURCE_NOT_FOUND, []),
    }
