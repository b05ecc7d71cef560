"""`barnabas user`: list, add, remove SCRAM users (KIP-554)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, TextIO

import click

from barnabas.cli.cluster import Connection
from barnabas.cli.errors import ERROR, OK, CommandError
from barnabas.cli.options import (
    Command,
    confirm,
    connection_options,
    examples,
    json_option,
    yes_option,
)
from barnabas.cli.output import Column, Output, note

MECHANISMS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
NAMES = {number: name for name, number in MECHANISMS.items()}
FEWEST_ITERATIONS, MOST_ITERATIONS = 4096, 16384


@click.group()
def user() -> None:
    """Users with SCRAM passwords: list, add, remove.

    Works with any Kafka broker. The client sends the salted and iterated password, and the broker
    stores keys that it derives from this: the password cannot be read back.
    """


@user.command("list", epilog=examples("barnabas user list", "barnabas user list alice --json"))
@click.argument("names", metavar="[USER]...", nargs=-1)
@connection_options
@json_option
def list_users(connection: Connection, output: Output, names: Sequence[str]) -> int:
    """List users, with their mechanisms."""
    with connection.admin() as admin:
        described = admin.describe_user_scram_credentials(list(names) or None)
    rows = [
        {
            "user": name,
            "mechanism": NAMES.get(int(info["mechanism"]), str(info["mechanism"])),
            "iterations": info["iterations"],
        }
        for name, description in sorted(described.items())
        for info in description["credential_infos"]
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
    errors = [row["error"] for row in described.values() if row["error"]]
    for error in errors:
        note(f"barnabas: {error}", "bad")
    return ERROR if errors else OK


def mechanism_option(**more: Any) -> Callable[[Command], Command]:
    """`--mechanism`, which may be given twice."""
    return click.option(
        "--mechanism", "mechanisms", multiple=True,
        type=click.Choice(list(MECHANISMS), case_sensitive=False), **more,
    )  # fmt: skip


@user.command(
    "add",
    epilog=examples(
        "barnabas user add alice",
        "barnabas user add alice --password-file /run/secrets/alice",
        "pwgen 24 1 | barnabas user add alice --mechanism SCRAM-SHA-256",
    ),
)
@click.argument("name", metavar="USER")
@mechanism_option(
    default=["SCRAM-SHA-512"], show_default=True, help="What the user may log in by; both, if said."
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
    help="How much work it takes to try a password.",
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

    The password is asked for on a terminal, and read from standard input or a file elsewhere. It is
    not an argument: other users can see those.
    """
    password = _password(name, password_file)
    with connection.admin() as admin:
        from kafka.admin import UserScramCredentialUpsertion

        # one request for each: several for one user are refused
        errors = [
            admin.alter_user_scram_credentials(
                [UserScramCredentialUpsertion(name, MECHANISMS[one], password, iterations)]
            )[name]
            for one in dict.fromkeys(mechanisms)
        ]
    return _print_results(output, name, mechanisms, errors, "may log in by")


def _password(name: str, file: TextIO | None) -> str:
    """The password. Raises: CommandError where there is none."""
    if file is None and sys.stdin.isatty():
        prompt = f"Password of {name}"
        typed: str = click.prompt(prompt, hide_input=True, confirmation_prompt=True, err=True)
        return typed
    password = (sys.stdin if file is None else file).readline().rstrip("\r\n")
    if not password:
        raise CommandError("the password is empty: write it into the first line")
    return password


@user.command("remove", epilog=examples("barnabas user remove alice --yes"))
@click.argument("name", metavar="USER")
@mechanism_option(help="Only this mechanism; by default all mechanisms that the user has.")
@yes_option
@connection_options
@json_option
def remove(
    connection: Connection, output: Output, name: str, mechanisms: Sequence[str], yes: bool
) -> int:
    """Remove a user, or one of its mechanisms.

    Connections that are open stay until their sessions end (connections.max.reauth.ms).
    """
    confirm(f"Remove the user {name}?", yes=yes)
    with connection.admin() as admin:
        from kafka.admin import UserScramCredentialDeletion

        if not mechanisms:
            description = admin.describe_user_scram_credentials([name])[name]
            if description["error"]:
                raise CommandError(description["error"])
            mechanisms = [NAMES[int(info["mechanism"])] for info in description["credential_infos"]]
        errors = []
        for one in dict.fromkeys(mechanisms):
            deletion = UserScramCredentialDeletion(name, MECHANISMS[one])
            errors.append(admin.alter_user_scram_credentials([deletion])[name])
    return _print_results(output, name, mechanisms, errors, "may no longer log in by")


def _print_results(
    output: Output, name: str, mechanisms: Sequence[str], errors: Sequence[str | None], what: str
) -> int:
    """Print the result for each mechanism; gives the exit code."""
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
