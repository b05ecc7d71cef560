"""The command `barnabas`: reads its arguments, and starts the broker or runs another command."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.installing import install_command

# logging and argparse are imported by `start` and `settings` alone: a command that asks a cluster
# needs neither, and importing them is a sixth of its start
if TYPE_CHECKING:
    import argparse

OWN_ARGUMENTS = (["start"], ["settings"], ["--version"])
CLOSED_OUTPUT = 141


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Gives: the exit code: 0; 1 after one line with the error; 130 after a Ctrl-C
    before the broker listens; 141 if the reader of the help or the settings has closed the pipe.
    """
    _fill_standard_descriptors()
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    try:
        code = _run(arguments)
        if sys.stdout is not None:  # None if the parent process has closed it
            sys.stdout.flush()
        return code
    except BrokenPipeError:
        if arguments[:1] == ["start"]:
            raise  # the error may be from another pipe or connection
        with open(os.devnull, "wb") as nothing:
            # at its exit the interpreter flushes standard output, which now goes to /dev/null
            os.dup2(nothing.fileno(), 1)
        return CLOSED_OUTPUT


def _run(arguments: list[str]) -> int:
    """Run `start` or `settings`; any other command is run by `barnabas.cli`. Gives: the
    exit code.
    """
    if arguments[:1] not in OWN_ARGUMENTS:
        return _run_other_command(arguments)
    from barnabas.daemon.arguments import refuse_unknown

    options, unknown = _parser().parse_known_args(arguments)
    if unknown:
        refuse_unknown(options.parser, unknown)
    return run_command(options)


def run_command(options: argparse.Namespace) -> int:
    """Run `start` or `settings` with its options. Gives: the exit code."""
    import logging

    from barnabas.broker.observation.log_lines import LineFormatter
    from barnabas.daemon.arguments import StartError

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter())
    logging.basicConfig(
        level=logging.WARNING if getattr(options, "quiet", False) else logging.INFO,
        handlers=[handler],
    )
    is_json = getattr(options, "log_format", None) == "json"
    try:
        if options.command == "settings":
            return _print_settings(options.filter)
        from barnabas.daemon.configure import log_as_json
        from barnabas.daemon.modes import start

        if is_json:
            log_as_json()
        return start(options)
    except StartError as error:
        if is_json:
            logging.getLogger("barnabas").critical("%s", error)
        else:
            print(f"barnabas: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _run_other_command(arguments: list[str]) -> int:
    """Run a command of `barnabas.cli`, which the daemon never imports; gives its exit code."""
    is_completing = "_BARNABAS_COMPLETE" in os.environ
    if (not arguments or arguments[0] in ("-h", "--help")) and not is_completing:
        return _print_help()
    try:
        from barnabas.cli import run

        return run(arguments, _parser)
    except ModuleNotFoundError as error:
        if error.name not in ("click", "kafka", "rich"):
            raise
    from barnabas.cli.commands import COMMANDS, no_such_command

    if arguments[0] not in COMMANDS:
        print(f"barnabas: {no_such_command(arguments[0])}", file=sys.stderr)
        return 2
    print(
        f"barnabas: `barnabas {arguments[0]}` needs further packages: " + install_command("cli"),
        file=sys.stderr,
    )
    return 1


def _parser() -> argparse.ArgumentParser:
    """The parser of `start` and `settings`."""
    from barnabas.daemon.arguments import parser

    return parser()


def _print_help() -> int:
    """Print the help of `barnabas`, without the libraries of the extra `cli`."""
    from importlib.util import find_spec

    from barnabas.cli.commands import help_text

    print(help_text(_parser()))
    if find_spec("click") is None:
        print(f"\n  All but start and settings need: {install_command('cli')}")
    return 0


def _fill_standard_descriptors() -> None:
    """Open /dev/null for each of the descriptors 0 to 2 that is closed, since the next opened file
    would get its number.

    A process may be started with standard input, output or error closed (`2>&-`, some supervisors).
    Then the metadata journal could get number 2, and text that a library or the cleaner's process
    writes to standard error would be written into the journal.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


def _print_settings(text: str) -> int:
    """Print the settings whose names contain a text, with their defaults. Raises: StartError if
    there is none.
    """
    from barnabas.broker.settings.rows_broker import BROKER_SETTINGS
    from barnabas.broker.settings.rows_topic import TOPIC_SETTINGS
    from barnabas.daemon.arguments import StartError

    is_found = False
    for heading, settings in (
        ("# of the broker: with --set, or in a file for --config", BROKER_SETTINGS),
        (
            "# of a topic: when it is created, or with kafka-configs and other clients that alter "
            "configs",
            TOPIC_SETTINGS,
        ),
    ):
        matches = [setting for _, setting in sorted(settings.items()) if text in setting.name]
        if matches:
            print(f"{chr(10) if is_found else ''}{heading}\n")
            is_found = True
        for setting in matches:
            print(f"{setting.name}={setting.render(setting.default) or ''}\n    {setting.doc}")
    if not is_found:
        raise StartError(
            f"no setting has {text!r} in its name; `barnabas settings` lists all of them"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
