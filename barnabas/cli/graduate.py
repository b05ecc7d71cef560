"""`barnabas graduate` and `barnabas take-over`: hand a data directory over to Apache Kafka, and
back.

The work is in barnabas.graduation; this module has the options and the output.
"""

from __future__ import annotations

import os
import secrets
import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import click

from barnabas.broker.rim.system_ids import SystemIds
from barnabas.broker.security.users import UsersFileError, parse_users
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.config_providers import resolve
from barnabas.broker.settings.exposure import is_secret
from barnabas.broker.settings.properties import read_properties
from barnabas.broker.settings.setting import ConfigError
from barnabas.broker.settings.topic_config import validate_topic_configs
from barnabas.cli import log_verify
from barnabas.cli.errors import CommandError
from barnabas.cli.options import DEFAULT_ADDRESS, SETTING, dry_run_option, ending, json_option
from barnabas.cli.output import Output, note, progress
from barnabas.daemon.preparation import start_and_stop
from barnabas.graduation.bootstrap import encode_bootstrap
from barnabas.graduation.bring_back import BringBackReport, bring_back
from barnabas.graduation.copies import UNFINISHED_NAME, copy_directory, remove_unfinished_copy
from barnabas.graduation.hand_over import HandOver, plan_hand_over
from barnabas.graduation.kafka_versions import KAFKA_VERSIONS
from barnabas.graduation.server_properties import INTER_BROKER_USER, StartSettings, write_properties
from barnabas.graduation.steps import UNFINISHED_SUFFIX, hand_over
from barnabas.graduation.survey import (
    GraduationError,
    Survey,
    UncleanError,
    check_decided,
    take_survey,
)
from barnabas.pkcs12 import kind_of_store
from barnabas.storage.disk import OsDisk, sync_file_system
from barnabas.storage.files.checkpoints import (
    LOCK_NAME,
    META_PROPERTIES_NAME,
    CorruptCheckpoint,
    decode_properties,
)
from barnabas.storage.log.log_directory import LogDirectoryError
from barnabas.texts import count_text, time_text

VERSIONS = ("3.9", "4.0", "4.3")
SHOWN = 20
DEFAULT_LISTENER_NOTE = (
    "no listeners are set, so Kafka will listen on {address}: if the broker was started with "
    "--port, --host or other listeners, pass --broker-set listeners=PLAINTEXT://HOST:PORT"
)
ANYWHERE = ("0.0.0.0", "::", "")


@click.command(
    epilog=ending(
        "barnabas graduate data --dry-run",
        "barnabas graduate data --config server.properties",
        "barnabas graduate data --to /var/lib/kafka --kafka 3.9 --set retention.ms=-1",
    )
)
@click.argument("data_dir", type=click.Path(exists=True, file_okay=False))
@click.option(
    "--to",
    "target",
    metavar="DIRECTORY",
    type=click.Path(),
    help="Copy the directory there for Kafka; closed segments become hard links if possible.",
)
@click.option(
    "--kafka",
    "version",
    type=click.Choice(VERSIONS),
    default=VERSIONS[-1],
    show_default=True,
    help="The version of Apache Kafka.",
)
@click.option(
    "--set",
    "topic_settings",
    metavar="KEY=VALUE",
    type=SETTING,
    multiple=True,
    help="A setting for all topics that do not set it.",
)
@click.option(
    "--config",
    "config_file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="The properties file that the broker was started with.",
)
@click.option(
    "--broker-set",
    "broker_settings",
    metavar="KEY=VALUE",
    type=SETTING,
    multiple=True,
    help="A setting that the broker was started with.",
)
@click.option(
    "--controller",
    metavar="HOST:PORT",
    help="The address of Kafka's controller (default: the port after the first listener's).",
)
@click.option("--recover", is_flag=True, help="Recover a directory that was not stopped cleanly.")
@click.option(
    "--abort-transactions",
    is_flag=True,
    help="Abort open transactions instead of leaving them open.",
)
@click.option("--no-verify", is_flag=True, help="Do not verify every batch first.")
@dry_run_option
@json_option
def graduate(
    output: Output,
    data_dir: str,
    target: str | None,
    version: str,
    topic_settings: Sequence[tuple[str, str]],
    config_file: str | None,
    broker_settings: Sequence[tuple[str, str]],
    controller: str | None,
    recover: bool,
    abort_transactions: bool,
    no_verify: bool,
    dry_run: bool,
) -> None:
    """Hand a data directory over to Apache Kafka, which continues with all of its data.

    The broker has to be stopped. Logs, offsets of groups and transactional ids stay as they are:
    two files are added, the cluster's metadata (bootstrap.checkpoint) and server.properties for
    Kafka. Open transactions stay open for their producers. From then on Barnabas refuses the
    directory, until `barnabas take-over` brings it back. docs/GROWING.md.
    """
    data_dir = os.path.abspath(data_dir)
    target = None if target is None else os.path.abspath(target)
    if target is not None and os.path.exists(target):
        raise CommandError(f"{target} exists: name a new directory")
    with _explained():
        given, config = _settings(data_dir, config_file, broker_settings)
        topic_configs = _checked(dict(topic_settings))
        if (recover or abort_transactions) and not dry_run:
            _prepare(config, data_dir, aborts=abort_transactions)
            # When the broker starts, it applies the dynamic settings to its config, so read the
            # settings again.
            given, config = _settings(data_dir, config_file, broker_settings)
        with _locked(data_dir):
            survey = _survey(data_dir)
            if not abort_transactions:
                _check_decided(survey)
            if not no_verify:
                _verify(data_dir, survey)
            plan = _plan(survey, version, config, topic_configs)
            where = data_dir if target is None else target
            entry = _entry(config)
            if "listeners" not in given.texts:
                plan.note(DEFAULT_LISTENER_NOTE.format(address=entry.address))
            _write_properties(plan, config, given, where, controller or _next_port(entry.address))
            if not dry_run:
                with _private_files():
                    _hand_over(plan, data_dir, target)
    back = f"barnabas take-over {where}{_given_options(config_file, broker_settings)}"
    _show_plan(output, plan, where, entry, back, dry_run=dry_run)


@contextmanager
def _explained() -> Iterator[None]:
    """Turn errors of the graduation into a CommandError with a text of one line."""
    try:
        yield
    except UncleanError as error:
        raise CommandError(
            f"{error}: start the broker there and stop it, or pass --recover"
        ) from error
    except (GraduationError, LogDirectoryError, ConfigError) as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        raise CommandError(f"{error.strerror or error} ({error.filename})") from error


@contextmanager
def _locked(data_dir: str) -> Iterator[None]:
    """Hold the lock of the directory, so that no broker starts there meanwhile. Raises:
    CommandError if a broker has it.
    """
    try:
        lock = OsDisk().lock(f"{data_dir}/{LOCK_NAME}")
    except BlockingIOError as error:
        raise CommandError(f"{data_dir} is in use by a broker: stop it first") from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _private_files() -> Iterator[None]:
    """Make files that are created in the block readable only for their owner, since they contain
    passwords.
    """
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def _settings(
    data_dir: str, config_file: str | None, broker_settings: Sequence[tuple[str, str]]
) -> tuple[StartSettings, BrokerConfig]:
    """The settings with which the broker was started, as text and as a config."""
    texts: dict[str, str] = {}
    if config_file is not None:
        with open(config_file, encoding="utf-8") as file:
            texts.update(read_properties(file.read()))
    of_file = texts.keys() - dict(broker_settings).keys()
    texts.update(broker_settings)
    texts.pop("log.dir", None)
    texts["log.dirs"] = data_dir
    texts["node.id"] = _node_id(data_dir) or texts.get("node.id", texts.get("broker.id", "1"))
    given = StartSettings(texts, resolve(texts, os.environ))
    config = BrokerConfig.from_properties(given.values, of_file=of_file)
    path = config.barnabas_users_file
    if path is not None:
        try:
            with open(path, encoding="utf-8") as file:
                config.users = parse_users(file.read())
        except (UsersFileError, UnicodeDecodeError) as error:
            raise CommandError(f"the users file {path}: {error}") from error
    return given, config


def _node_id(data_dir: str) -> str | None:
    """The node id in meta.properties; None if the file is missing or torn."""
    try:
        with open(f"{data_dir}/{META_PROPERTIES_NAME}", "rb") as file:
            return decode_properties(file.read()).get("node.id")
    except (FileNotFoundError, CorruptCheckpoint):
        return None  # the survey reports the error


def _checked(topic_settings: dict[str, str]) -> dict[str, str]:
    """The settings for all topics, checked. Raises: ConfigError."""
    validate_topic_configs(topic_settings)
    return topic_settings


def _prepare(config: BrokerConfig, data_dir: str, *, aborts: bool) -> None:
    """Start the broker, which recovers the directory, and stop it. With `aborts`, open transactions
    are aborted before the stop.
    """
    aborted = start_and_stop(
        OsDisk(),
        config,
        SystemIds(),
        now_ms=round(time.monotonic() * 1000),
        wall_ms=round(time.time() * 1000),
        aborts_transactions=aborts,
    )
    if aborts:
        note(f"{count_text(aborted, 'transaction is', 'transactions are')} aborted in {data_dir}")


def _survey(data_dir: str) -> Survey:

    return take_survey(OsDisk(), data_dir)


def _check_decided(survey: Survey) -> None:

    check_decided(survey)


def _verify(data_dir: str, survey: Survey) -> None:
    """Read every batch of the surveyed partitions. Raises: CommandError if there are faults."""
    compacted = log_verify.compacted_partitions(data_dir)
    faults: list[log_verify.Fault] = []
    names = survey.directories
    with progress("partitions", len(names)) as bar:
        for name in names:
            report = log_verify.verify_partition(
                f"{data_dir}/{name}",
                in_use=False,
                compacted=name in compacted,
                opens=False,
                advance=lambda count: None,
            )
            faults += report.faults
            bar.advance()
    for fault in faults[:SHOWN]:
        note(f"{fault.path}: {fault.text}", "bad")
    if faults:
        raise CommandError(
            f"{count_text(len(faults), 'fault')} in {data_dir}: `barnabas log verify` shows "
            "all; --no-verify continues nevertheless"
        )


def _plan(
    survey: Survey,
    version: str,
    config: BrokerConfig,
    topic_configs: dict[str, str],
) -> HandOver:

    return plan_hand_over(survey, KAFKA_VERSIONS[version], config, topic_configs)


def _write_properties(
    plan: HandOver, config: BrokerConfig, given: StartSettings, where: str, controller: str
) -> None:

    write_properties(
        plan,
        config,
        given,
        data_dir=where,
        controller=controller,
        password=secrets.token_urlsafe(24),
        new_salt=lambda: secrets.token_bytes(24),
        kind_of_file=_kind_of_store,
    )


def _kind_of_store(path: str) -> str | None:
    """The kind of a key store or trust store; None if the file cannot be read."""
    try:
        with open(path, "rb") as file:
            return kind_of_store(file.read())
    except OSError:
        return None


def _hand_over(plan: HandOver, data_dir: str, target: str | None) -> None:
    """Hand the directory over, or a copy of it if a target is given. The copy has a temporary name
    until it is complete.
    """
    disk = OsDisk()
    bootstrap = encode_bootstrap(plan, round(time.time() * 1000))
    if target is None:
        hand_over(disk, data_dir, plan, bootstrap, sync_file_system)
        return
    unfinished = target + UNFINISHED_SUFFIX
    remove_unfinished_copy(unfinished)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with progress("bytes", None) as bar:
        copy_directory(data_dir, unfinished, bar.advance)
    hand_over(disk, unfinished, plan, bootstrap, sync_file_system)
    os.rename(unfinished, target)
    disk.unlink(f"{target}/{UNFINISHED_NAME}")
    disk.fsync_dir(os.path.dirname(target))


class _Entry(NamedTuple):
    """The address (HOST:PORT) by which a client on this machine reaches the first listener, and the
    options that the client needs.
    """

    address: str
    client_options: str


def _entry(config: BrokerConfig) -> _Entry:
    """The address of Kafka's first listener for clients, and the options that its tools need for
    it.
    """
    for listener in config.listeners:
        if listener.path is None:
            _, host, port = listener.endpoint
            address = f"{'127.0.0.1' if host in ANYWHERE else host}:{port}"
            is_plain = listener.security_protocol == "PLAINTEXT"
            return _Entry(address, "" if is_plain else " --command-config client.properties")
    return _Entry(DEFAULT_ADDRESS, "")


def _next_port(address: str) -> str:
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) + 1}"


# --- output -------------------------------------------------------------------------------------


def _commands(where: str, entry: _Entry) -> list[str]:
    """The commands with which the user starts Kafka and looks at its partitions."""
    return [
        f"bin/kafka-server-start.sh {where}/server.properties",
        f"bin/kafka-topics.sh --bootstrap-server {entry.address}{entry.client_options} --describe "
        "--unavailable-partitions",
    ]


def _given_options(
    config_file: str | None,
    broker_settings: Sequence[tuple[str, str]],
    option: str = "--broker-set",
) -> str:
    """The options that pass the same settings to another command, each after a blank.

    Takes:  option, the name that this command's option for one setting has.
    """
    words = [] if config_file is None else ["--config", config_file]
    for name, text in broker_settings:
        words += [option, f"{name}={'...' if is_secret(name) else text}"]
    return "".join(f" {shlex.quote(word)}" for word in words)


def _show_plan(
    output: Output, plan: HandOver, where: str, entry: _Entry, back: str, *, dry_run: bool
) -> None:
    """Print what is handed over, and what the user has to do next."""
    survey, metadata = plan.survey, plan.survey.metadata
    counts = {
        "topics": len(metadata.topics),
        "partitions": survey.partition_count,
        "users": len({user for user, _ in plan.scram_credentials} - {INTER_BROKER_USER}),
        "acls": len(metadata.acls),
        "quotas": len(metadata.client_quotas),
    }
    if output.as_json:
        output.data(
            {
                "directory": where,
                "kafka": plan.kafka.name,
                "dry_run": dry_run,
                **counts,
                "features": plan.features,
                "next_producer_id": survey.next_producer_id,
                "topic_configs": plan.topic_configs,
                "broker_default_configs": plan.broker_default_configs,
                "broker_configs": plan.broker_configs,
                "open_transactions": [_as_json(one) for one in survey.open_transactions],
                "notes": plan.notes,
                "next": _commands(where, entry),
            }
        )
        return
    done = "would be handed over" if dry_run else "is handed over"
    output.line(f"{where} {done} to Apache Kafka {plan.kafka.name}", "good")
    output.fields(
        [
            *counts.items(),
            ("features", ", ".join(f"{name}={level}" for name, level in plan.features.items())),
            ("defaults of all brokers", _pairs(plan.broker_default_configs)),
            ("settings of this broker", _pairs(plan.broker_configs)),
        ]
    )
    _show_open_transactions(output, survey)
    for text in plan.notes:
        output.line(f"note: {text}", "warning")
    if dry_run:
        output.line("Nothing was changed. server.properties would be:")
        output.line(_without_secrets(plan.properties))
    _show_next_steps(output, survey.cluster_id, where, entry, back)


def _show_next_steps(output: Output, cluster_id: str, where: str, entry: _Entry, back: str) -> None:
    """Print the commands that follow a hand-over."""
    start, look = _commands(where, entry)
    output.line("Next, in the directory of Apache Kafka:")
    output.line(f"  {start}")
    output.line(f"  {look}      (prints nothing if no partition is unavailable)")
    output.line(
        "More brokers: format each with this cluster's id "
        f"({cluster_id}) and process.roles=broker, start it, and move partitions there with "
        "bin/kafka-reassign-partitions.sh; docs/GROWING.md has the steps."
    )
    output.line(f"To return: stop Kafka, then {back}")


def _show_open_transactions(output: Output, survey: Survey) -> None:
    """Print the transactions that stay open, with a warning."""
    found = survey.open_transactions
    if not found:
        return
    output.line(
        f"{count_text(len(found), 'transaction')} still open: their producers continue them, or "
        "Kafka aborts them at their timeout (--abort-transactions aborts them now)",
        "warning",
    )
    for one in found[:SHOWN]:
        partitions = ", ".join(map(str, one.partitions))
        output.line(
            f"  {one.transactional_id}: {one.state} since {time_text(one.start_ms)}, timeout "
            f"{one.timeout_ms} ms; {partitions}"
        )
    if len(found) > SHOWN:
        output.line(f"  and {len(found) - SHOWN} more; --json shows all")


def _as_json(transaction: Any) -> dict[str, Any]:
    fields: dict[str, Any] = transaction._asdict()
    return {**fields, "partitions": [str(one) for one in transaction.partitions]}


def _pairs(configs: dict[str, str]) -> str:
    return ", ".join(f"{name}={text}" for name, text in sorted(configs.items()))


def _without_secrets(properties: str) -> str:
    """The lines of a properties file, with the values of secrets hidden."""
    lines = []
    for line in properties.splitlines():
        name, equals, _ = line.partition("=")
        lines.append(f"  {name}=(hidden)" if equals and is_secret(name) else f"  {line}")
    return "\n".join(lines)


# --- take-over ----------------------------------------------------------------------------------


@click.command(
    "take-over",
    epilog=ending(
        "barnabas take-over data --dry-run",
        "barnabas take-over /var/lib/kafka --config server.properties",
    ),
)
@click.argument("data_dir", metavar="DIRECTORY", type=click.Path(exists=True, file_okay=False))
@click.option(
    "--config",
    "config_file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="The properties file that the broker will be started with.",
)
@click.option(
    "--broker-set",
    "broker_settings",
    metavar="KEY=VALUE",
    type=SETTING,
    multiple=True,
    help="A setting that the broker will be started with.",
)
@dry_run_option
@json_option
def take_over(
    output: Output,
    data_dir: str,
    config_file: str | None,
    broker_settings: Sequence[tuple[str, str]],
    dry_run: bool,
) -> None:
    """Bring a directory back that `barnabas graduate` handed over to Apache Kafka.

    Kafka has to be stopped. Its changes are kept: records, offsets, transactions, created and
    deleted topics, settings, users, ACLs, quotas. Every partition has to have an in-sync replica in
    this directory. Settings that decide what is deleted stay in force: those that --config does not
    have are kept in the directory, or named, and nothing is changed. See docs/GROWING.md.
    """
    data_dir = os.path.abspath(data_dir)
    with _explained():
        _, config = _settings(data_dir, config_file, broker_settings)
        with _locked(data_dir):
            report = bring_back(OsDisk(), data_dir, config, sync_file_system, is_dry_run=dry_run)
    options = _given_options(config_file, broker_settings, "--set")
    start = f"barnabas start --data-dir {data_dir}{options}"
    _show_report(output, report, data_dir, start, dry_run=dry_run)


def _show_report(
    output: Output, report: BringBackReport, data_dir: str, start: str, *, dry_run: bool
) -> None:
    """Print what was brought back from Kafka. Takes: start, the command that starts the broker."""
    rows = {
        "topics_made": report.made,
        "topics_grown": report.grown,
        "topics_deleted": report.deleted,
        "topics_configured": report.configured,
        "users_changed": report.users,
        "acls_changed": report.acls,
        "quotas_changed": report.quotas,
        "settings_kept": report.kept,
        "settings_left_out": report.refused,
    }
    if output.as_json:
        output.data(
            {
                "directory": data_dir,
                "dry_run": dry_run,
                "was_clean": report.was_clean,
                "has_started": report.has_started,
                **rows,
                "notes": report.differing,
                "next": [start],
            }
        )
        return
    done = "would be brought back" if dry_run else "is brought back"
    output.line(f"{data_dir} {done}", "good")
    rows["settings_kept"] = _pairs(report.kept)
    output.fields((name.replace("_", " "), value) for name, value in rows.items())
    if report.kept:
        output.line(
            "The settings kept are in the directory, as defaults of all brokers: they apply "
            'whatever a properties file says, until `barnabas config unset broker "" NAME` removes '
            "them"
        )
    for text in report.differing:
        output.line(f"note: {text}", "warning")
    if not report.has_started:
        output.line(
            "Kafka wrote no metadata log: the topics are those of the hand-over",
            "warning",
        )
    if not report.was_clean:
        output.line("Kafka was not stopped cleanly: the next start recovers the logs", "warning")
    output.line(f"Next: {start}")
