"""Writes docs/COMMAND_REFERENCE.md from the commands.

Run it with `make docs-pages`. A test checks that the page is up to date.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import click

from barnabas.cli.root import make_root
from barnabas.daemon.arguments import parser

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "COMMAND_REFERENCE.md"
_BEFORE = """\
# Every command and its options

*Written by `make docs-pages` from the commands.* [COMMAND_LINE.md](COMMAND_LINE.md) shows their
output. The output of `--help` for each:
"""
_WIDTH = 96


def text() -> str:
    """The whole file."""
    broker = parser()
    sections = [_section(f"barnabas {name}", help_text) for name, help_text in _own(broker)]
    root = make_root(lambda: broker)
    settings = {**root.context_settings, "max_content_width": _WIDTH}
    context = click.Context(root, info_name="barnabas", **settings)
    names = [name for name in root.list_commands(context) if name not in dict(_own(broker))]
    for name in names:
        command = root.get_command(context, name)
        assert command is not None
        sections += [_section(*described) for described in _described(command, context, name)]
    return _BEFORE + "".join(sections)


def _own(broker: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """The broker's commands, with their help."""
    for action in broker._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, own in action.choices.items():
                own.formatter_class = lambda prog: argparse.HelpFormatter(prog, width=_WIDTH)
                yield name, own.format_help()


def _described(
    command: click.Command, parent: click.Context, name: str
) -> Iterator[tuple[str, str]]:
    """A command and all its subcommands, with their help."""
    context = click.Context(
        command, info_name=name, parent=parent, max_content_width=_WIDTH, terminal_width=_WIDTH
    )
    yield context.command_path, command.get_help(context)
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            assert found is not None
            yield from _described(found, context, below)


def _section(name: str, help_text: str) -> str:
    level = "##" if name.count(" ") == 1 else "###"
    return f"\n{level} {name}\n\n```\n{help_text.rstrip()}\n```\n"
