"""`barnabas user`: list, add, remove SCRAM users (KIP-554)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, TextIO

import click

from barnabas.cli.client.cluster_client import ClusterClient
from barnabas.cli.cluster import Connection
from barnabas.cli.denied import denied_by
from barnabas.cli.errors import ERROR, OK, CommandError, RefusedError
from barnabas.cli.options import (
    Command,
    confirm,
    connection_options,
    ending,
    json_option,
    yes_option,
)
from barnabas.cli.output import Column, Output, note
from barnabas.client.request_kind import RequestKind
from barnabas.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from barnabas.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    UserName,
)

MECHANISMS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
NAMES = {number: name for name, number in MECHANISMS.items()}
SALT_BYTES = 24
FEWEST_ITERATIONS, MOST_ITERATIONS = 4096, 16384


@click.group()
def user() -> None:
    """Users with SCRAM passwords: list, add, remove.

    Works with any Kafka broker. The client sends the salted and iterated password, and the broker
    stores keys that it derives from this: the password cannot be read back.
    """


@user.command("list", epilog=ending("barnabas user list", "barnabas user list alice --json"))
@click.argument("names", metavar="[USER]...", nargs=-1)
@connection_options
@json_option
def list_users(connection: Connection, output: Output, names: Sequence[str]) -> int:
    """List users, with their mechanisms."""
    with connection.admin() as admin:
        described = _describe(admin, names)
    rows = [
        {
            "user": row.user,
            "mechanism": NAMES.get(info.mechanism, str(info.mechanism)),
            "iterations": info.iterations,
        }
        for row in sorted(described, key=lambda row: row.user)
        for info in row.credential_infos
    ]
    if output.as_json:
        output.data(rows)
    else:
        columns = [
            Column("user", "USER", "name"),
            Column("mechanism", "MECHANISM"),
            Column("iterations", "ITERATIONS"),
        ]
        output.table(rows, columns, "" if names else "no users")
    errors = [_said(row) for row in described if row.error_code]
    for error in errors:
        note(f"barnabas: {error}", "bad")
    return ERROR if errors else OK


def _describe(
    admin: ClusterClient, names: Sequence[str]
) -> list[DescribeUserScramCredentialsResult]:
    """The users of these names, or all users, each with its error.

    Raises: RefusedError if the whole request is refused.
    """
    kind = RequestKind(
        DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse, 0, 0
    )
    users = [UserName(name) for name in names] or None
    answer = admin.any(kind, DescribeUserScramCredentialsRequest(users))
    if answer.error_code:
        raise RefusedError(answer.error_code, answer.error_message)
    return answer.results


def _alter(
    admin: ClusterClient,
    deletions: Sequence[ScramCredentialDeletion] = (),
    upsertions: Sequence[ScramCredentialUpsertion] = (),
) -> str | None:
    """Change the credentials of one user. Gives: the error text, or None."""
    kind = RequestKind(AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse, 0, 0)
    request = AlterUserScramCredentialsRequest(list(deletions), list(upsertions))
    answer = admin.controller(kind, request, lambda answer: answer.results[0].error_code)
    return next((_said(row) for row in answer.results if row.error_code), None)


def _said(row: Any) -> str:
    error = RefusedError(row.error_code, row.error_message)
    return denied_by(error) or str(error) or error.name


def mechanism_option(**more: Any) -> Callable[[Command], Command]:
    """The option `--mechanism`, which may be given several times."""
    return click.option(
        "--mechanism", "mechanisms", multiple=True,
        type=click.Choice(list(MECHANISMS), case_sensitive=False), **more,
    )  # fmt: skip


@user.command(
    "add",
    epilog=ending(
        "barnabas user add alice",
        "barnabas user add alice --password-file /run/secrets/alice",
        "pwgen 24 1 | barnabas user add alice --mechanism SCRAM-SHA-256",
    ),
)
@click.argument("name", metavar="USER")
@mechanism_option(
    default=["SCRAM-SHA-512"],
    show_default=True,
    help="A mechanism by which the user may log in; may be given twice.",
)
@click.option(
    "--password-file",
    metavar="FILE",
    type=click.File(encoding="utf-8"),
    help="A file whose first line is the password; -: standard input.",
)
@click.option(
    "--iterations",
    type=click.IntRange(FEWEST_ITERATIONS, MOST_ITERATIONS),
    default=FEWEST_ITERATIONS,
    show_default=True,
    help="The number of hash iterations of the password.",
)
@connection_options
@json_option
def add(
    connection: Connection,
    output: Output,
    name: str,
    mechanisms: Sequence[str],
    password_file: TextIO | None,
    iterations: int,
) -> int:
    """Add a user, or change its password.

    The command asks for the password on a terminal; elsewhere it reads it from standard input or a
    file. The password is not an argument, since other users can see arguments.
    """
    password = _password(name, password_file)
    with connection.admin() as admin:
        # One request for each mechanism, since a broker refuses several changes of one user in a
        # request.
        errors = [
            _alter(admin, upsertions=[_upsertion(name, one, password, iterations)])
            for one in dict.fromkeys(mechanisms)
        ]
    return _print_results(output, name, mechanisms, errors, "may log in by")


def _upsertion(
    name: str, mechanism: str, password: str, iterations: int
) -> ScramCredentialUpsertion:
    """The salted and iterated password of a user (RFC 5802)."""
    import hashlib

    salt = os.urandom(SALT_BYTES)
    hash_name = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)
    return ScramCredentialUpsertion(name, MECHANISMS[mechanism], iterations, salt, salted)


def _password(name: str, file: TextIO | None) -> str:
    """The password, from a prompt on a terminal or from a line of input.

    Raises: CommandError if the password is empty.
    """
    if file is None and sys.stdin.isatty():
        prompt = f"Password of {name}"
        typed: str = click.prompt(prompt, hide_input=True, confirmation_prompt=True, err=True)
        return typed
    password = (sys.stdin if file is None else file).readline().rstrip("\r\n")
    if not password:
        raise CommandError("the password is empty: write it into the first line")
    return password


@user.command("remove", epilog=ending("barnabas user remove alice --yes"))
@click.argument("name", metavar="USER")
@mechanism_option(help="Only this mechanism; by default all mechanisms that the user has.")
@yes_option
@connection_options
@json_option
def remove(
    connection: Connection, output: Output, name: str, mechanisms: Sequence[str], yes: bool
) -> int:
    """Remove a user, or one of its mechanisms.

    Open connections stay open until their sessions end (connections.max.reauth.ms).
    """
    confirm(f"Remove the user {name}?", yes=yes)
    with connection.admin() as admin:
        if not mechanisms:
            (described,) = _describe(admin, [name])
            if described.error_code:
                raise CommandError(_said(described))
            mechanisms = [NAMES[info.mechanism] for info in described.credential_infos]
        errors = [
            _alter(admin, deletions=[_deletion(name, one)]) for one in dict.fromkeys(mechanisms)
        ]
    return _print_results(output, name, mechanisms, errors, "may no longer log in by")


def _deletion(name: str, mechanism: str) -> ScramCredentialDeletion:
    """The request's row that deletes a user's credential."""
    return ScramCredentialDeletion(name, MECHANISMS[mechanism])


def _print_results(
    output: Output, name: str, mechanisms: Sequence[str], errors: Sequence[str | None], what: str
) -> int:
    """Print the result for each mechanism. Gives: the exit code."""
    rows = [
        {"user": name, "mechanism": mechanism, "error": error}
        for mechanism, error in zip(dict.fromkeys(mechanisms), errors, strict=True)
    ]
    if output.as_json:
        output.data(rows)
    for row in rows:
        if row["error"]:
            note(f"barnabas: {row['error']}", "bad")
        elif not output.as_json:
            output.line(f"{name}: {what} {row['mechanism']}")
    return ERROR if any(errors) else OK
