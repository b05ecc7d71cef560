"""The list of commands: their names, their purpose, and the help of `barnabas` itself.

It imports neither click nor the commands, so that `barnabas --help` is fast, and works where the
extra `cli` is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

# name: (module of barnabas.cli, its line in the help of `barnabas`)
COMMANDS = {
    "acl": ("acl", "ACLs, the rights of users: list, add, remove."),
    "certs": ("certs", "Make certificates for tests and first steps."),
    "check": ("check", "Check a broker: its health and its versions."),
    "completion": ("completion", "Print a shell's completion script."),
    "config": ("config", "Settings of topics, brokers, groups and client metrics."),
    "consume": ("consume", "Read records of topics to standard output."),
    "graduate": ("graduate", "Hand a data directory over to Apache Kafka."),
    "groups": ("groups", "Consumer groups: lag, members, offsets."),
    "log": ("log", "Read and verify a data directory's files."),
    "produce": ("produce", "Write the lines of files or standard input to a topic."),
    "profile": ("profile", "Profiles: a cluster's address and settings under a name."),
    "quota": ("quota", "Quotas of users, client ids and addresses: list, set, remove."),
    "records": ("trim", "Records of partitions: delete the oldest ones."),
    "share": ("share", "Share groups: read records and acknowledge them."),
    "support-bundle": ("support_bundle", "Settings, state and log lines in a zip, for help."),
    "take-over": ("graduate", "Bring a directory back from Apache Kafka."),
    "topics": ("topics", "Topics: list, create, describe, alter, delete."),
    "txn": ("txn", "Transactions: list, describe, abort, commit, why-stuck."),
    "user": ("user", "Users with SCRAM passwords: list, add, remove."),
}
BROKER_COMMANDS = ("start", "settings")
ABOUT = (
    "A Kafka-compatible broker with transactions, and tools for it and for any other Kafka broker."
)
END = """\b
Examples:
  barnabas start --port 9092 --data-dir ./data
  barnabas topics create orders --partitions 4
  echo hello | barnabas produce orders
  barnabas consume orders
  barnabas txn why-stuck orders-0

\b
A command's own help has its examples: barnabas txn why-stuck --help
Exit codes: 0 fine, 1 an error, 2 wrong usage, 3 not healthy, stuck or faults found."""
WIDTH = 78
INDENT = 2


def broker_commands(
    parser: argparse.ArgumentParser,
) -> Iterator[tuple[str, argparse.ArgumentParser, str]]:
    """The commands of the broker's parser, each with its name, its own parser and its purpose."""
    import argparse

    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            summaries = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, own in action.choices.items():
                text = summaries.get(name, "")
                yield name, own, f"{text[:1].upper()}{text[1:]}."


def help_text(parser: argparse.ArgumentParser) -> str:
    """The help of the command `barnabas`, in click's form.

    Takes: parser, the parser of the broker's own commands.
    """
    import textwrap

    rows = [(name, summary) for name, _, summary in broker_commands(parser)]
    rows += [(name, summary) for name, (_, summary) in COMMANDS.items()]
    options = [("--version", "Print the version."), ("-h, --help", "Show this message and exit.")]
    parts = [
        "Usage: barnabas [OPTIONS] COMMAND [ARGS]...\n",
        textwrap.fill(ABOUT, WIDTH, initial_indent="  ", subsequent_indent="  ") + "\n",
        "Options:",
        *_definitions(options),
        "\nCommands:",
        *_definitions(rows),
        "",
        textwrap.indent(END.replace("\b\n", ""), "  "),
    ]
    return "\n".join(parts)


def _definitions(rows: list[tuple[str, str]]) -> Iterator[str]:
    """The lines of a list of options or commands in click's form: the names, then their texts in a
    column.
    """
    import textwrap

    width = max(len(name) for name, _ in rows) + 2
    for name, text in rows:
        yield textwrap.fill(
            text,
            WIDTH,
            initial_indent=f"  {name:<{width}}",
            subsequent_indent=" " * (width + INDENT),
        )


def no_such_command(name: str) -> str:
    """The error text for an unknown command, which suggests the most similar command."""
    import difflib

    near = difflib.get_close_matches(name, [*BROKER_COMMANDS, *COMMANDS], n=1)
    hint = f" Did you mean `barnabas {near[0]}`?" if near else ""
    return f"unknown command {name!r}.{hint}"
