"""The command `barnabas` itself: the list of commands, and how their errors are reported.

It uses click rather than typer: importing click takes 75 ms of CPU, typer 110 ms. click completes
for bash, zsh and fish, and its groups can load a command's module when that command is named (typer
needs all modules to know their options). rich draws tables and progress bars. It is imported when
the first of them is drawn.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.commands import (
    ABOUT,
    BROKER_COMMANDS,
    COMMANDS,
    END,
    broker_commands,
    help_text,
    no_such_command,
)
from barnabas.cli.errors import (
    CLOSED_OUTPUT,
    ERROR,
    INTERRUPTED,
    OK,
    USAGE,
    ClosedOutputError,
    CommandError,
    RefusedError,
    explain,
)
from barnabas.schemas.errors import SchemaError
from barnabas.terminal import guard_terminal
from barnabas.version import __version__

if TYPE_CHECKING:
    import argparse

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class LazyGroup(click.Group):
    """A group of commands that imports a command's module only when the command is named.

    `start` and `settings` belong to another parser. Here they serve only for help and completion.
    """

    def __init__(
        self, broker_parser: Callable[[], argparse.ArgumentParser], **attributes: Any
    ) -> None:
        super().__init__(**attributes)
        self._broker_parser = broker_parser

    @cached_property
    def _broker_commands(self) -> dict[str, click.Command]:
        return dict(_broker_commands(self._broker_parser()))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise ClosedOutputError from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*BROKER_COMMANDS, *COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in BROKER_COMMANDS:
            return self._broker_commands[cmd_name]
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"barnabas.cli.{COMMANDS[cmd_name][0]}")
        command = getattr(module, cmd_name.replace("-", "_"))
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            ctx.fail(no_such_command(args[0]))
        return super().resolve_command(ctx, args)

    def get_help(self, ctx: click.Context) -> str:
        """The help, without importing the commands' modules."""
        return help_text(self._broker_parser())


def _broker_commands(parser: argparse.ArgumentParser) -> list[tuple[str, click.Command]]:
    """The commands of the broker's parser, for help and completion. They are never run from
    here.
    """
    commands = []
    for name, own, summary in broker_commands(parser):
        options = [
            click.Option([*option.option_strings, f"_{option.dest}"], is_flag=option.nargs == 0)
            for option in own._actions
            if option.option_strings and option.dest != "help"
        ]
        commands.append((name, click.Command(name, params=[*options], short_help=summary)))
    return commands


def make_root(broker_parser: Callable[[], argparse.ArgumentParser]) -> click.Group:
    """The command `barnabas`. Takes: broker_parser, which makes the parser of `start` and
    `settings`, for their help and completion.
    """
    root = LazyGroup(
        broker_parser,
        name="barnabas",
        context_settings=CONTEXT,
        help=ABOUT,
        epilog=END,
    )
    root.params.append(
        click.Option(
            ["--version"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_print_version,
            help="Print the version.",
        )
    )
    return root


def _print_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        click.echo(f"barnabas {__version__}")
        ctx.exit()


def run_command(
    arguments: Sequence[str], broker_parser: Callable[[], argparse.ArgumentParser]
) -> int:
    """Run one command; gives its exit code, one of errors.py."""
    guard_terminal()
    root = make_root(broker_parser)
    try:
        answer = root.main(list(arguments), prog_name="barnabas", standalone_mode=False)
        sys.stdout.flush()
        return answer if isinstance(answer, int) else OK
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else "")
        return OK
    except click.ClickException as error:
        error.show()
        if isinstance(error, click.NoSuchOption) and isinstance(
            getattr(error.ctx, "command", None), click.Group
        ):
            click.echo("Options come after the command.", err=True)
        return USAGE if isinstance(error, click.UsageError) else ERROR
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except (BrokenPipeError, ClosedOutputError):
        with contextlib.suppress(OSError), open(os.devnull, "wb") as nothing:
            # The interpreter flushes standard output when it exits. That must not fail again, so
            # redirect it to /dev/null.
            os.dup2(nothing.fileno(), 1)
        return CLOSED_OUTPUT
    except (CommandError, SchemaError) as error:
        click.echo(f"barnabas: {error}", err=True)
        return ERROR
    except Exception as error:
        if not is_client_error(error):
            raise
        click.echo(f"barnabas: {explain(error)}", err=True)
        return ERROR


def is_client_error(error: Exception) -> bool:
    """Whether the error comes from a broker's response or from a connection."""
    from barnabas.client.errors import ClientError

    return isinstance(error, OSError | RefusedError | ClientError)
