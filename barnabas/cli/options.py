"""Options that commands share: those for the connection, and value types such as
TOPIC-PARTITION.
"""

from __future__ import annotations

import datetime
import functools
import re
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import click
from click.core import ParameterSource

from barnabas.cli import errors
from barnabas.cli.cluster import SETTING_NAMES, Connection
from barnabas.cli.completing import complete_profile
from barnabas.cli.denied import PRINCIPAL, denied_by
from barnabas.cli.errors import CommandError
from barnabas.cli.output import Output
from barnabas.cli.profiles import chosen_profile, settings_of_environment
from barnabas.protocol.topic_partition import TopicPartition

Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULT_ADDRESS = "127.0.0.1:9092"
DEFAULT_TIMEOUT_S = 15.0
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"-?(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def section(title: str, *lines: str) -> str:
    """A part of a command's help whose lines are not rewrapped."""
    return f"\b\n{title}:\n" + "\n".join(f"  {line}" for line in lines)


def examples(*lines: str) -> str:
    """The end of a command's help: examples, one per line."""
    return section("Examples", *lines)


def exit_codes(**meanings: str) -> str:
    """The exit codes in a command's help.

    Takes: meanings, the command's own meanings of exit codes, keyed by the names in errors.py in
           lower case.
    """
    texts = {
        "ok": "success",
        "error": "an error; a line on standard error says what to do",
        "usage": "wrong usage",
        "interrupted": "ended by Ctrl-C",
        "closed_output": "standard output was closed, as `| head` does",
    } | meanings
    codes = sorted((getattr(errors, name.upper()), text) for name, text in texts.items())
    return section("Exit codes", *(f"{code:<4} {text}" for code, text in codes))


def help_end(*parts: str) -> str:
    """The end of a command's help, made of several parts."""
    return "\n\n".join(parts)


def ending(*lines: str, **meanings: str) -> str:
    """The end of a command's help: examples, one per line, and the exit codes.

    Takes: meanings, as for `exit_codes`.
    """
    return help_end(examples(*lines), exit_codes(**meanings))


def json_option(command: Command) -> Command:
    """Add `--json` to a command. The command gets an Output."""

    @click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
    @functools.wraps(command)
    def with_output(*args: Any, as_json: bool, **kwargs: Any) -> Any:
        return command(*args, output=Output(as_json), **kwargs)

    return with_output  # type: ignore[return-value] # click's decorators keep no types


_CONNECTION_OPTIONS = (
    click.option(
        "-b",
        "--bootstrap-server",
        metavar="ADDRESS",
        default=DEFAULT_ADDRESS,
        envvar="BARNABAS_BOOTSTRAP_SERVER",
        show_default=True,
        show_envvar=True,
        help="The cluster's address: HOST:PORT, or several separated by commas.",
    ),
    click.option(
        "--client-config",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False),
        envvar="BARNABAS_CLIENT_CONFIG",
        show_envvar=True,
        help=(
            "A properties file with a client's settings: security.protocol, sasl.*, ssl.*. A "
            "variable such as BARNABAS_SASL_PASSWORD sets a single one."
        ),
    ),
    click.option(
        "--profile",
        metavar="NAME",
        envvar="BARNABAS_PROFILE",
        show_envvar=True,
        shell_complete=complete_profile,
        help="The profile with the cluster's address and settings; see `barnabas profile`.",
    ),
    click.option(
        "--timeout",
        "timeout_s",
        metavar="SECONDS",
        type=click.FloatRange(min=0, min_open=True),
        default=DEFAULT_TIMEOUT_S,
        envvar="BARNABAS_TIMEOUT",
        show_default=True,
        show_envvar=True,
        help="How long to wait for an answer.",
    ),
)


def connection_options(command: Command) -> Command:
    """Add `--bootstrap-server`, `--client-config`, `--profile` and `--timeout` to a command. The
    command gets a Connection.
    """

    @functools.wraps(command)
    def with_connection(
        *args: Any,
        bootstrap_server: str,
        client_config: str | None,
        profile: str | None,
        timeout_s: float,
        **kwargs: Any,
    ) -> Any:
        connection = make_connection(bootstrap_server, client_config, profile, timeout_s)
        if (context := click.get_current_context(silent=True)) is not None:
            context.meta[PRINCIPAL] = connection.principal()
        try:
            return command(*args, connection=connection, **kwargs)
        except Exception as error:
            if text := denied_by(error):
                raise CommandError(text) from error
            raise

    wrapped: Any = with_connection  # click's decorators do not preserve types
    for option in reversed(_CONNECTION_OPTIONS):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[no-any-return]


def make_connection(
    bootstrap_server: str, client_config: str | None, profile_name: str | None, timeout_s: float
) -> Connection:
    """The connection of a command, from its options, the environment and a profile.

    `barnabas.cli.profiles` defines their precedence.

    Raises: CommandError for a profile that does not exist.
    """
    context = click.get_current_context()

    def is_given(name: str, *sources: ParameterSource) -> bool:
        return context.get_parameter_source(name) in sources

    profile = chosen_profile(profile_name)
    if profile.bootstrap_server and is_given("bootstrap_server", ParameterSource.DEFAULT):
        bootstrap_server = profile.bootstrap_server
    if profile.timeout_s and is_given("timeout_s", ParameterSource.DEFAULT):
        timeout_s = profile.timeout_s
    of_profile = profile.settings if client_config is None else {}
    of_environment = settings_of_environment(SETTING_NAMES)
    is_file_of_option = is_given("client_config", ParameterSource.COMMANDLINE)
    below = {**of_profile, **(of_environment if is_file_of_option else {})}
    above = {} if is_file_of_option else of_environment
    return Connection(bootstrap_server, client_config, timeout_s, (below, above))


def yes_option(command: Command) -> Command:
    """Add `--yes` to a command. With this option the command does not ask for confirmation."""
    return click.option("-y", "--yes", is_flag=True, help="Do it without confirmation.")(command)


def dry_run_option(command: Command) -> Command:
    """`--dry-run`: change nothing."""
    help_text = "Show what would be done; change nothing."
    return click.option("--dry-run", is_flag=True, help=help_text)(command)


def confirm(question: str, *, yes: bool, type_in: str = "") -> None:
    """Ask for confirmation on a terminal; elsewhere `--yes` is required. Raises: click.Abort.

    Takes: type_in, the text that the user has to type instead of `y`.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} Pass --yes: standard input is not a terminal.")
    if not type_in:
        click.confirm(question, abort=True, err=True)
        return
    typed = click.prompt(f"{question} Type {type_in} to continue", default="", err=True)
    if typed != type_in:
        raise click.Abort


class TopicPartitionType(click.ParamType[TopicPartition]):
    """TOPIC-PARTITION on the command line, as Kafka names a partition's directory: `orders-0`."""

    name = "TOPIC-PARTITION"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> TopicPartition:
        if isinstance(value, TopicPartition):
            return value
        topic, dash, partition = str(value).rpartition("-")
        if not (dash and topic and partition.isdigit()):
            self.fail(
                f"{value!r} is not a partition: write TOPIC-NUMBER, as in orders-0", param, ctx
            )
        return TopicPartition(topic, int(partition))


class SettingType(click.ParamType[tuple[str, str]]):
    """KEY=VALUE."""

    name = "KEY=VALUE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        key, equals, text = str(value).partition("=")
        if not (equals and key.strip()):
            self.fail(f"{value!r} must have the form KEY=VALUE", param, ctx)
        return key.strip(), text


class OffsetSpec(NamedTuple):
    """A place in a partition: `kind` is earliest, latest, offset or time.

    value: the offset, or a wall clock time in ms.
    """

    kind: str
    value: int = -1

    def __str__(self) -> str:
        if self.kind == "time":
            moment = datetime.datetime.fromtimestamp(self.value / 1000).astimezone()
            return moment.isoformat(" ", "seconds")
        return f"offset {self.value}" if self.kind == "offset" else self.kind


EARLIEST, LATEST = OffsetSpec("earliest"), OffsetSpec("latest")


class OffsetSpecType(click.ParamType[OffsetSpec]):
    """A place on the command line: earliest, latest, an offset, a time (ISO 8601; local unless it
    has a zone; 12:00 is the last noon), or a duration before now (`90s`, `10m`, `24h`, `7d`).
    """

    name = "PLACE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> OffsetSpec:
        if isinstance(value, OffsetSpec):
            return value
        place = parse_place(str(value), round(time.time() * 1000))
        if place is None:
            self.fail(
                f"{value!r} is neither an offset nor a time: write earliest, latest, 1234, 10m "
                "(ago), 12:00, 2026-11-22 or 2026-11-22T14:00:00+01:00",
                param,
                ctx,
            )
        return place


def parse_place(text: str, now_ms: int) -> OffsetSpec | None:
    """The place that a text names, or None."""
    lowered = text.strip().lower()
    if lowered in ("earliest", "beginning", "start"):
        return EARLIEST
    if lowered in ("latest", "end"):
        return LATEST
    if lowered.isdigit():
        return OffsetSpec("offset", int(lowered))
    if lowered == "now":
        return OffsetSpec("time", now_ms)
    duration = _DURATION.fullmatch(lowered.removesuffix(" ago"))
    if duration:
        return OffsetSpec("time", now_ms - round(float(duration[1]) * _UNITS_MS[duration[2]]))
    try:
        moment = datetime.datetime.fromisoformat(text.strip())
    except ValueError:
        try:
            moment = _last_at(datetime.time.fromisoformat(text.strip()), now_ms)
        except ValueError:
            return None
    return OffsetSpec("time", round(moment.timestamp() * 1000))


def _last_at(time_of_day: datetime.time, now_ms: int) -> datetime.datetime:
    """The latest moment with this time of day that is not after now."""
    now = datetime.datetime.fromtimestamp(now_ms / 1000, time_of_day.tzinfo)
    moment = datetime.datetime.combine(now.date(), time_of_day)
    if moment > now:
        moment = datetime.datetime.combine(now.date() - datetime.timedelta(days=1), time_of_day)
    return moment


TOPIC_PARTITION, SETTING, PLACE = TopicPartitionType(), SettingType(), OffsetSpecType()
