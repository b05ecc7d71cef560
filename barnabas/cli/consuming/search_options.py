"""The options of `consume` that select records."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from barnabas.cli.consuming.record_search import PLACES, RecordSearch, WrongPattern

Command = TypeVar("Command", bound=Callable[..., Any])


def search_options(command: Command) -> Command:
    """Add `--grep` and its modifiers to a command. The command gets a RecordSearch, or None."""

    @functools.wraps(command)
    def with_search(
        *args: Any,
        patterns: Sequence[str],
        places: Sequence[str],
        ignore_case: bool,
        invert_match: bool,
        **kwargs: Any,
    ) -> Any:
        search = _search(patterns, places, ignore_case, invert_match)
        return command(*args, search=search, **kwargs)

    decorated: Any = with_search
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return] # click's decorators keep no types


def _search(
    patterns: Sequence[str], places: Sequence[str], ignore_case: bool, invert_match: bool
) -> RecordSearch | None:
    """The search made from --grep and its options; None without --grep. Raises:
    click.UsageError.
    """
    if not patterns:
        for name, value in (
            ("--grep-in", places),
            ("--ignore-case", ignore_case),
            ("--invert-match", invert_match),
        ):
            if value:
                raise click.UsageError(f"{name} needs --grep PATTERN")
        return None
    try:
        return RecordSearch(
            patterns, places or PLACES, ignore_case=ignore_case, inverted=invert_match
        )
    except WrongPattern as error:
        raise click.UsageError(f"--grep: {error}") from error


_OPTIONS: Sequence[Callable[[Any], Any]] = (
    click.option(
        "--grep",
        "patterns",
        metavar="PATTERN",
        multiple=True,
        help="Print only records that match this regular expression, or one of several.",
    ),
    click.option(
        "--grep-in",
        "places",
        type=click.Choice(PLACES),
        multiple=True,
        help=(
            "Where --grep searches; may be given twice; a header is name=value. [default: "
            "everywhere]"
        ),
    ),
    click.option("-i", "--ignore-case", is_flag=True, help="With --grep: ignore case."),
    click.option(
        "-v", "--invert-match", is_flag=True, help="With --grep: print records that do not match."
    ),
)
