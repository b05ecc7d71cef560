"""The options of `barnabas start` and `barnabas settings`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NoReturn

from barnabas.version import __version__

DEFAULT_HOST = "127.0.0.1"


class StartError(Exception):
    """The broker cannot start. The command prints the error's text as one line, and exits with code
    1.
    """


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    main = argparse.ArgumentParser(
        prog="barnabas",
        description="A Kafka-compatible broker with transactions, in Python. Stock Kafka clients "
        "talk to it.",
        epilog="Example: barnabas start --port 9092 --data-dir ./data --set num.partitions=4 -- "
        "With the extra `cli` there are topics, groups, produce, consume, txn, log, check, config "
        "and user as well.",
    )
    main.add_argument("--version", action="version", version=f"barnabas {__version__}")
    commands = main.add_subparsers(dest="command", metavar="COMMAND", required=True)
    start = commands.add_parser(
        "start",
        help="start a broker and stay in the foreground until Ctrl-C or SIGTERM",
        description=(
            "Start a broker and stay in the foreground until Ctrl-C or SIGTERM. Settings have "
            "Apache Kafka's names; --set overrides the file, and --port, --host and --data-dir "
            "override both. docs/CONFIGURATION.md lists all. Without a terminal, SIGHUP reads the "
            "certificates and opens the log files again."
        ),
    )
    _add_start_arguments(start)
    _add_observation_arguments(start)
    _add_test_arguments(start)
    text = "list every setting with its default and what it does"
    settings = commands.add_parser("settings", help=text, description=text)
    settings.add_argument(
        "filter", nargs="?", default="", help="only those whose names contain this"
    )
    for command in (start, settings):
        command.set_defaults(parser=command, has_imported_all=False, ends_at_input=False)
    return main


def refuse_unknown(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> NoReturn:
    """Exit with the usage of the command. For each unknown option, print the known option that may
    have been meant.
    """
    import difflib

    hints = []
    for argument in arguments:
        if not argument.startswith("-"):
            continue  # most likely the value of the preceding option
        name = argument.partition("=")[0]
        near = difflib.get_close_matches(name, parser._option_string_actions, n=1, cutoff=0.7)
        hints.append(f"there is no {name}" + (f"; did you mean {near[0]}?" if near else ""))
    parser.error(". ".join(hints) or f"unknown argument {arguments[0]!r}")


def _ports(text: str) -> list[int]:
    """The ports that --port names."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no port") from None


def _add_start_arguments(start: argparse.ArgumentParser) -> None:
    """Add the options of the broker itself."""
    start.add_argument(
        "--config", metavar="FILE", help="a properties file, such as Kafka's server.properties"
    )
    start.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="settings",
        help="one setting; may be given many times",
    )
    start.add_argument(
        "--host",
        metavar="ADDRESS",
        help=f"the address to listen on (default {DEFAULT_HOST}; 0.0.0.0: every interface)",
    )
    start.add_argument(
        "--port",
        metavar="N",
        type=_ports,
        help=(
            "the port (default 9092; 0: a free one, which is printed); with several brokers the "
            "first one's, or all: N,N,N"
        ),
    )
    start.add_argument(
        "--brokers",
        metavar="N",
        type=int,
        help=(
            "the number of brokers in this process, for tests of clients: each has its own port "
            "(the next after --port), with one data directory; docs/TESTING.md"
        ),
    )
    start.add_argument(
        "--data-dir", metavar="DIR", help="the directory of the logs (default ./data)"
    )
    start.add_argument(
        "--standby-of",
        metavar="HOST:PORT",
        help=(
            "serve no client, and keep a copy of the leader's data, whose "
            "barnabas.replication.port is there; docs/STANDBY.md"
        ),
    )
    start.add_argument("--quiet", action="store_true", help="print nothing but warnings and errors")


def _add_observation_arguments(start: argparse.ArgumentParser) -> None:
    """Add the options for logs, metrics and the console (docs/METRICS.md)."""
    start.add_argument(
        "--audit-log",
        metavar="FILE",
        help="append a JSON line to it for each allowed or refused operation; docs/SECURITY.md",
    )
    start.add_argument(
        "--metrics-port",
        metavar="N",
        type=int,
        help="serve metrics for Prometheus on 127.0.0.1 (0: a free port, which is printed); needs "
        "the extra `metrics`; docs/METRICS.md",
    )
    start.add_argument(
        "--console-port",
        metavar="N",
        type=int,
        help="serve a page on 127.0.0.1 that shows topics, transactions and groups live (0: a free "
        "port, which is printed); docs/CONSOLE.md",
    )
    start.add_argument(
        "--console-writes",
        action="store_true",
        help="let the console produce and replay records, with the rights of its user",
    )
    start.add_argument(
        "--console-registry",
        metavar="URL",
        help="the schema registry for the console's keys and values; needs the extra `schemas`",
    )
    start.add_argument(
        "--log-format",
        choices=("text", "json"),
        help=(
            "the format of the log on standard error: text (the default), or a JSON object on "
            "each line; docs/METRICS.md"
        ),
    )
    start.add_argument(
        "--log-level",
        metavar="[LOGGER=]LEVEL",
        action="append",
        default=[],
        dest="log_levels",
        help=(
            "TRACE, DEBUG, INFO, WARN, ERROR or FATAL, for all loggers or for one; may be given "
            "many times. barnabas.transactions=DEBUG logs each step of each transaction"
        ),
    )


def _add_test_arguments(start: argparse.ArgumentParser) -> None:
    """Add the options for tests of clients (docs/TESTING.md)."""
    start.add_argument(
        "--emulate",
        metavar="RELEASE",
        choices=("3.9", "4.3"),
        help=(
            "emulate that release of Apache Kafka: its versions of requests, its features and "
            "its answers; docs/COMPATIBILITY.md"
        ),
    )
    start.add_argument(
        "--ready-file",
        metavar="FILE",
        help="a file that contains the address, and exists while the broker listens",
    )
    start.add_argument(
        "--test-control",
        metavar="PORT",
        type=int,
        help=(
            "for tests of clients: an HTTP endpoint on 127.0.0.1 that injects faults and moves "
            "the clock (0: a free port, which is printed); docs/TESTING.md"
        ),
    )
    start.add_argument(
        "--test-clock-ahead",
        metavar="MS",
        type=int,
        default=0,
        help="with --test-control: how far the clock is ahead of the machine's at the start",
    )
    start.add_argument(
        "--stop-at-end-of-input",
        action="store_true",
        help="stop when standard input ends, as it does when the parent process ends",
    )
    start.add_argument(
        "--remove-data-at-end-of-input",
        action="store_true",
        help="the same, then remove the data directory; for tests",
    )
    start.add_argument(
        "--stop-with-parent",
        action="store_true",
        help="with one of the two: stop also when the parent process ends, if a child that it has "
        "forked keeps the input open (Linux)",
    )
