"""Topics by name, by a shell pattern (`orders-*`) or, with --regex, by a regular expression.

No topic's name contains `*`, `?` or `[`, so a name with one of these characters is a pattern.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import click

from barnabas.cli.client.cluster_client import ClusterClient
from barnabas.cli.client.topics import name_of
from barnabas.cli.errors import CommandError
from barnabas.cli.offsets import describe_topics
from barnabas.cli.options import Command, confirm
from barnabas.protocol.messages.metadata import MetadataResponseTopic

_GLOB = re.compile(r"[*?\[]")


def regex_option(command: Command) -> Command:
    """Add `--regex` to a command. With this option, the command takes names as regular
    expressions.
    """
    return click.option(
        "-e", "--regex", is_flag=True, help="Each TOPIC is a regular expression for whole names."
    )(command)


def has_pattern(names: Sequence[str], *, regex: bool) -> bool:
    """Whether one of the names may match several topics."""
    return regex or any(_GLOB.search(name) for name in names)


def select_topics(
    admin: ClusterClient,
    names: Sequence[str],
    *,
    regex: bool = False,
    internal: bool = False,
) -> list[MetadataResponseTopic]:
    """The topics that match names and patterns, in order of name; all topics if no names are given.

    Takes:  internal, whether patterns also match internal topics.
    Raises: CommandError for a topic that does not exist, and a pattern that matches no topic.
    """
    if names and not has_pattern(names, regex=regex):
        return describe_topics(admin, list(dict.fromkeys(names)))
    found = [row for row in describe_topics(admin) if internal or not row.is_internal]
    if not names:
        return found
    chosen: set[str] = set()
    for name in names:
        matches = _matcher(name, regex=regex)
        matching = {name_of(row) for row in found if matches.fullmatch(name_of(row))}
        if not matching:
            kind = "pattern" if has_pattern([name], regex=regex) else "name"
            raise CommandError(
                f"no topic has the {kind} {name!r}: `barnabas topics list` shows all topics"
            )
        chosen |= matching
    return [row for row in found if name_of(row) in chosen]


def _matcher(name: str, *, regex: bool) -> re.Pattern[str]:
    """The regular expression for a name, a shell pattern, or (with `regex`) a regular expression.
    Raises: click.UsageError.
    """
    if not regex:
        import fnmatch

        return re.compile(fnmatch.translate(name))
    try:
        return re.compile(name)
    except re.error as error:
        raise click.UsageError(f"{name!r} is not a regular expression: {error}") from error


def confirm_topics(topics: Sequence[str], question: str, *, yes: bool, by_pattern: bool) -> None:
    """Ask for confirmation before an operation on topics. Raises: click.Abort.

    If a pattern matched several topics, the user has to type their number, since a `y` is typed too
    easily.
    """
    if not by_pattern or len(topics) == 1:
        confirm(question, yes=yes)
        return
    confirm(question, yes=yes, type_in=str(len(topics)))
