"""The help of every command: it has a synopsis, a description, options, examples that can be
parsed, and exit codes.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator

import click
import pytest

from barnabas.cli.root import make_root
from barnabas.daemon.arguments import parser

GIVES_3 = {"check", "log verify", "txn why-stuck"}
_LINE_WITH_COMMAND = re.compile(r"\bbarnabas [a-z]")


def _walk(command: click.Command, context: click.Context) -> Iterator[click.Context]:
    """The contexts of a command and of all commands below it."""
    yield context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from _walk(below, click.Context(below, info_name=name, parent=context))


def _contexts() -> dict[str, click.Context]:
    """The contexts of all commands that click parses, by their paths."""
    root = make_root(parser)
    own = {"start", "settings"}
    context = click.Context(root, info_name="barnabas", max_content_width=100, terminal_width=100)
    found = {}
    for one in _walk(root, context):
        path = one.command_path.partition(" ")[2]
        if path and path not in own:
            found[path] = one
    return found


CONTEXTS = _contexts()
LEAVES = {path: one for path, one in CONTEXTS.items() if not isinstance(one.command, click.Group)}


def test_there_are_commands() -> None:
    assert len(LEAVES) > 40


@pytest.mark.parametrize("name", ["start", "settings"])
def test_the_broker_s_own_commands_say_what_they_are_for(name: str) -> None:
    (commands,) = (
        action for action in parser()._actions if isinstance(action, argparse._SubParsersAction)
    )
    assert commands.choices[name].description
    root = make_root(parser)
    command = root.get_command(click.Context(root), name)
    assert command is not None
    text = command.get_short_help_str(200)
    assert text[0].isupper() and text.endswith(".") and not text.endswith("..")


@pytest.mark.parametrize("path", CONTEXTS)
def test_a_command_says_what_it_is_for(path: str) -> None:
    command = CONTEXTS[path].command
    assert command.help, "no description"
    first = command.help.strip().splitlines()[0]
    assert first[0].isupper()
    assert command.help.strip().endswith((".", "?", ")"))
    assert command.get_short_help_str(200)


@pytest.mark.parametrize("path", LEAVES)
def test_the_synopsis_names_each_argument(path: str) -> None:
    context = LEAVES[path]
    usage = context.command.get_usage(context)
    assert usage.startswith(f"Usage: barnabas {path} [OPTIONS]")
    for argument in context.command.params:
        if isinstance(argument, click.Argument):
            assert argument.make_metavar(context).strip("[]") in usage.replace("\n", " ")


@pytest.mark.parametrize("path", LEAVES)
def test_each_option_has_a_help(path: str) -> None:
    for option in LEAVES[path].command.params:
        if isinstance(option, click.Option):
            assert option.help, option.opts
            assert option.help[0].isupper() or option.help.split()[0].rstrip(",") in (
                "earliest",
            ), option.help


def _examples(path: str) -> list[str]:
    """The example command lines in the help of a command that run this command."""
    text = LEAVES[path].command.epilog or ""
    lines = [line.strip() for line in text.splitlines() if _LINE_WITH_COMMAND.search(line)]
    return [line for line in lines if f"barnabas {path}" in line]


@pytest.mark.parametrize("path", LEAVES)
def test_each_command_has_an_example_and_its_options_exist(path: str) -> None:
    examples = _examples(path)
    assert examples
    for line in examples:
        line = line.replace('"$(', "").replace(')"', "")
        words = shlex.split(line.partition(f"barnabas {path}")[2].partition(" # ")[0])
        for end in ("|", "<", ">", "2>"):
            words = words[: words.index(end)] if end in words else words
        context = LEAVES[path]
        context.command.make_parser(context).parse_args(list(words))


@pytest.mark.parametrize("path", LEAVES)
def test_exit_codes_are_in_the_help(path: str) -> None:
    context = LEAVES[path]
    _, title, rest = context.command.get_help(context).partition("Exit codes:\n")
    assert title
    assert title not in rest, "once"
    codes = set(re.findall(r"^ +(\d+) ", rest.partition("\n\n")[0], re.MULTILINE))
    assert codes >= {"0", "1", "2", "130"}
    assert ("3" in codes) == (path in GIVES_3)


def test_the_brokers_own_options_have_a_help() -> None:
    for action in parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, own in action.choices.items():
                lacking = [option.option_strings for option in own._actions if not option.help]
                assert lacking == [], name


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_command_and_option_is_completed(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test passes the name of each command and option to click's completion."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    complete = kind(make_root(parser), {}, "barnabas", "_BARNABAS_COMPLETE")
    for path, context in CONTEXTS.items():
        *before, last = path.split()
        assert last in [row.value for row in complete.get_completions(before, last)], path
        offered = {row.value for row in complete.get_completions(path.split(), "--")}
        wanted = {
            name
            for option in context.command.params
            if isinstance(option, click.Option) and not option.hidden
            for name in option.opts
            if name.startswith("--")
        }
        assert wanted <= offered, path
