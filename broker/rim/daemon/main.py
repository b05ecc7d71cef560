"""The command `barnabas`: reads its arguments, starts the broker, says where it is, and stops it
cleanly.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import os
import random
import resource
import shutil
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from barnabas.broker.observation.log_lines import LineFormatter
from barnabas.broker.settings.listeners import JWKS_URL
from barnabas.installing import install_command
from barnabas.version import __version__

if TYPE_CHECKING:
    from barnabas.broker.replication.rim.pair_member import PairMember
    from barnabas.broker.rim.log_output import LogOutput
    from barnabas.broker.settings.config import BrokerConfig
    from barnabas.broker.settings.listeners import ListenerConfig

logger = logging.getLogger("barnabas")

DEFAULT_HOST = "127.0.0.1"
Sockets = dict[str, socket.socket]
# A collection of the second generation looks at what five of the first left: 125,000 objects, in
# 10 to 30 ms. With twenty times 50,000 it took 140 ms where 100,000 transactions had come.
GC_THRESHOLDS = (25_000, 4, 500)
REPLICATION_PORT, STANDBY_OF = "barnabas.replication.port", "--standby-of"
OWN_ARGUMENTS = (["start"], ["settings"], ["--version"])
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StartError(Exception):
    """The broker cannot start: one clear line, exit code 1."""


class SystemIds:
    """Random names from the operating system's generator."""

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def uuid(self) -> uuid.UUID:
        return uuid.uuid4()

    def random31(self) -> int:
        return self._random.randrange(1, 2**31)


def parser() -> argparse.ArgumentParser:
    """The command line."""
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
        description="Start a broker and stay in the foreground until Ctrl-C or SIGTERM. Settings "
        "have Apache Kafka's names; --set goes before the file, --port, --host and --data-dir "
        "before both. docs/CONFIGURATION.md lists all settings.",
    )
    _add_start_arguments(start)
    _add_watching_arguments(start)
    _add_test_arguments(start)
    settings = commands.add_parser(
        "settings", help="list every setting with its default and what it does"
    )
    settings.add_argument(
        "filter", nargs="?", default="", help="only settings whose names contain this"
    )
    for command in (start, settings):
        command.set_defaults(parser=command)
    return main


def _unusable_data_directory(config: BrokerConfig, error: OSError) -> StartError:
    """The refusal of a data directory that the system does not let the broker use."""
    is_file = isinstance(error, FileExistsError | NotADirectoryError)
    why = "it is a file" if is_file else error.strerror or str(error)
    return StartError(
        f"cannot use the data directory {config.data_dir}: {why}; --data-dir DIR names another"
    )


def _refuse_unknown(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> NoReturn:
    """Exit with a command's usage and the option that each unknown argument may have meant."""
    import difflib

    hints = []
    for argument in arguments:
        if not argument.startswith("-"):
            continue  # most likely the value of the option before it
        name = argument.partition("=")[0]
        near = difflib.get_close_matches(name, parser._option_string_actions, n=1, cutoff=0.7)
        hints.append(f"there is no {name}" + (f"; did you mean {near[0]}?" if near else ""))
    parser.error(". ".join(hints) or f"there is no {arguments[0]!r} to be given here")


def _ports(text: str) -> list[int]:
    """The ports that --port names."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no port") from None


def _add_start_arguments(start: argparse.ArgumentParser) -> None:
    """What a broker is started with."""
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
        help=f"where to listen (default {DEFAULT_HOST}; 0.0.0.0: on every interface)",
    )
    start.add_argument(
        "--port",
        metavar="N",
        type=_ports,
        help="the port (default 9092; 0: a free one, which is printed); of several brokers the "
        "first one's, or each one's: N,N,N",
    )
    start.add_argument(
        "--brokers",
        metavar="N",
        type=int,
        help="how many brokers this process is, for tests of clients: each on a port of its own "
        "(the next ones after --port), all over one data directory; docs/TESTING.md",
    )
    start.add_argument("--data-dir", metavar="DIR", help="where logs are kept (default ./data)")
    start.add_argument(
        "--standby-of",
        metavar="HOST:PORT",
        help="serve nobody, and hold the same data as the broker whose barnabas.replication.port "
        "that is; docs/STANDBY.md",
    )
    start.add_argument("--quiet", action="store_true", help="print nothing but warnings and errors")


def _add_watching_arguments(start: argparse.ArgumentParser) -> None:
    """What a broker shows of itself (docs/METRICS.md)."""
    start.add_argument(
        "--audit-log",
        metavar="FILE",
        help="append a line of JSON to that file for what clients are allowed and refused; "
        "docs/SECURITY.md",
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
        "--log-format",
        choices=("text", "json"),
        help="how the log is written on standard error: a line for people (the default), or a JSON "
        "object a line; docs/METRICS.md",
    )
    start.add_argument(
        "--log-level",
        metavar="[LOGGER=]LEVEL",
        action="append",
        default=[],
        dest="log_levels",
        help="TRACE, DEBUG, INFO, WARN, ERROR or FATAL, of all loggers or of one; may be given "
        "many times. barnabas.transactions=DEBUG tells each step of each transaction",
    )


def _add_test_arguments(start: argparse.ArgumentParser) -> None:
    """What those start a broker with who test by it (docs/TESTING.md)."""
    start.add_argument(
        "--emulate",
        metavar="RELEASE",
        choices=("3.9", "4.3"),
        help="be that release of Apache Kafka for clients: its versions of requests, its features "
        "and its answers; docs/COMPATIBILITY.md",
    )
    start.add_argument(
        "--ready-file",
        metavar="FILE",
        help="a file that is there, with the address in it, while the broker listens",
    )
    start.add_argument(
        "--test-control",
        metavar="PORT",
        type=int,
        help="for tests of clients: an HTTP endpoint on 127.0.0.1 that makes faults and moves the "
        "clock (0: a free port, which is printed); docs/TESTING.md",
    )
    start.add_argument(
        "--test-clock-ahead",
        metavar="MS",
        type=int,
        default=0,
        help="with --test-control: by how much the clock is ahead of the machine's from the start",
    )
    start.add_argument(
        "--stop-at-end-of-input",
        action="store_true",
        help="stop when standard input ends, as it does when the process that holds it is gone",
    )
    start.add_argument(
        "--remove-data-at-end-of-input",
        action="store_true",
        help="the same, and remove the data directory then; for tests",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code: 0, 1 after one line that says what is wrong, or 130 for a
    Ctrl-C before it listens.
    """
    _fill_standard_descriptors()
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments[:1] not in OWN_ARGUMENTS:
        return _run_other_command(arguments)
    options, unknown = parser().parse_known_args(arguments)
    if unknown:
        _refuse_unknown(options.parser, unknown)
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
        if is_json:
            _log_as_json()
        return _start(options)
    except StartError as error:
        if is_json:
            logger.critical("%s", error)
        else:
            print(f"barnabas: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _run_other_command(arguments: list[str]) -> int:
    """Run a command of `barnabas.cli`, which the daemon never imports; gives its exit code."""
    try:
        from barnabas.cli import run

        return run(arguments, parser())
    except ModuleNotFoundError as error:
        if error.name not in ("click", "kafka", "rich"):
            raise
    if not arguments or arguments[0] in ("-h", "--help"):
        parser().print_help()
        return 0
    print(
        f"barnabas: `barnabas {arguments[0]}` needs more than the broker does: "
        + install_command("cli"),
        file=sys.stderr,
    )
    return 1


def _fill_standard_descriptors() -> None:
    """Have something at descriptors 0 to 2: whatever is opened next takes the lowest that is free.

    A process may be started with standard input, output or error closed (`2>&-`, some supervisors).
    Then the metadata journal had number 2, and what a library or the cleaner's process says on
    standard error would have been written into it.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


def _print_settings(text: str) -> int:
    from barnabas.broker.settings.config import BROKER_SETTINGS, TOPIC_SETTINGS

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


def _read_config(options: argparse.Namespace) -> Any:
    from barnabas.broker.settings.config import BrokerConfig, ConfigError

    try:
        properties = _properties_of(options.config) if options.config else {}
        secret_files = [options.config] if _has_secrets(properties) else []
        for setting in options.settings:
            key, equals, value = setting.partition("=")
            if not equals:
                raise StartError(f"--set {key[:40]}: it must have the form KEY=VALUE")
            properties[key.strip()] = value
        if options.data_dir:
            properties.pop("log.dir", None)
            properties["log.dirs"] = options.data_dir
        if options.brokers is not None:
            properties["barnabas.brokers"] = str(options.brokers)
        if options.emulate is not None:
            properties["barnabas.emulate"] = options.emulate
        if options.log_format is not None:
            properties["barnabas.log.format"] = options.log_format
        if options.audit_log is not None:
            properties["barnabas.audit.log"] = options.audit_log
        if options.metrics_port is not None:
            properties["barnabas.metrics.port"] = str(options.metrics_port)
        if options.console_port is not None:
            properties["barnabas.console.port"] = str(options.console_port)
        secret_files += _secret_files(properties)
        properties = _with_provided_values(properties)
        if options.port is not None or options.host is not None:
            properties["listeners"] = _moved_listeners(properties, options.host, options.port)
        config = BrokerConfig.from_properties(properties)
        _read_users(config)
        _make_credentials(config)
        _read_certificates(config)
        _read_signing_keys(config)
        _check_audit_log(config)
    except ConfigError as error:
        raise StartError(str(error)) from error
    from barnabas.broker.settings.exposure import warnings_of

    arguments = _arguments_with_values(options)
    for warning in (*config.warnings, *warnings_of(config, arguments, secret_files)):
        logger.warning("%s", warning)
    return config


def _properties_of(path: str) -> dict[str, str]:
    """What stands in the file of --config. Raises: StartError, ConfigError."""
    from barnabas.broker.settings.config import read_properties

    try:
        with open(path, encoding="utf-8") as file:
            return read_properties(file.read())
    except OSError as error:
        raise StartError(f"cannot read the configuration {path}: {error.strerror}") from error


def _has_secrets(properties: Mapping[str, str]) -> bool:
    """Whether a secret stands in the settings themselves."""
    from barnabas.broker.settings.exposure import is_secret

    return any(is_secret(name) and "${" not in text for name, text in properties.items())


def _secret_files(properties: Mapping[str, str]) -> list[str]:
    """The files that secrets are taken from. Raises: ConfigError."""
    if not any("${" in text for text in properties.values()):
        return []
    from barnabas.broker.settings.config_providers import files_of
    from barnabas.broker.settings.exposure import is_secret

    return files_of({name: text for name, text in properties.items() if is_secret(name)
                     or name.startswith("config.")})  # fmt: skip


def _arguments_with_values(options: argparse.Namespace) -> list[str]:
    """The settings that stand on the command line, where everybody may read them."""
    return [setting.partition("=")[0].strip() for setting in options.settings]


def _with_provided_values(properties: dict[str, str]) -> dict[str, str]:
    """The settings with what stands in files and in the environment. Raises: ConfigError."""
    if not any("${" in text or name.startswith("config.") for name, text in properties.items()):
        return properties
    from barnabas.broker.settings.config_providers import resolve

    return resolve(properties, os.environ)


def _moved_listeners(
    properties: Mapping[str, str], host: str | None, ports: Sequence[int] | None
) -> str:
    """The value of `listeners` with the first of them where --host and --port say.

    Raises: StartError, ConfigError.
    """
    from barnabas.broker.settings.config import BrokerConfig

    for port in ports or ():
        if not 0 <= port <= 65535:
            raise StartError(f"--port {port}: a port is between 0 and 65535")
    listeners = BrokerConfig.from_properties(properties).listeners
    first = listeners[0].endpoint
    if listeners[0].path is not None:
        raise StartError(f"--host and --port do nothing to {first}: leave them out")
    moved = first._replace(
        host=first.host if host is None else host, port=ports[0] if ports else first.port
    )
    return ",".join(map(str, (moved, *(one.endpoint for one in listeners[1:]))))


def _read_users(config: BrokerConfig) -> None:
    """Take the users of barnabas.users.file. Raises: StartError, ConfigError."""
    path = config.barnabas_users_file
    if path is None:
        return
    from barnabas.broker.security.users import UsersFileError, parse_users

    try:
        with open(path, encoding="utf-8") as file:
            config.users = parse_users(file.read())
    except OSError as error:
        raise StartError(f"cannot read the users of {path}: {error.strerror}") from error
    except (UsersFileError, UnicodeDecodeError) as error:
        raise StartError(f"the users file {path}: {error}") from error


def _make_credentials(config: BrokerConfig) -> None:
    """Salt and iterate the passwords of the users file, in a thread: nobody waits for it."""
    mechanisms = {name for one in config.listeners if one.has_sasl for name in one.sasl_mechanisms}
    if not config.users or not mechanisms:
        return
    from barnabas.broker.security.scram import MECHANISMS
    from barnabas.broker.security.users import make_credentials

    wanted = [mechanism for name, mechanism in MECHANISMS.items() if name in mechanisms]
    arguments = (config.users, wanted, config.user_credentials, lambda: os.urandom(16))
    threading.Thread(target=make_credentials, args=arguments, name="salting", daemon=True).start()


def _read_certificates(config: BrokerConfig) -> None:
    """Make the listeners' TLS ready. Raises: StartError."""
    for listener in config.listeners:
        if listener.has_tls:
            from barnabas.broker.rim.tls import TlsError, TlsListener

            try:
                listener.tls = TlsListener(listener.tls_settings(config.explicit))
            except TlsError as error:
                raise StartError(f"{listener.endpoint}: {error}") from error


def _read_signing_keys(config: BrokerConfig) -> None:
    """Have the keys read that sign tokens, where listeners take some. Raises: StartError."""
    for listener in config.listeners:
        if listener.oauth_keys is not None and listener[JWKS_URL]:
            from barnabas.broker.security.oauth import KeySetError
            from barnabas.broker.security.rim.jwks import JwksReader
            from barnabas.broker.settings.exposure import without_password

            try:
                JwksReader(listener, listener.oauth_keys).start()
            except KeySetError as error:
                url = without_password(listener[JWKS_URL])
                raise StartError(f"{JWKS_URL}={url}: {error}") from error


def _check_audit_log(config: BrokerConfig) -> None:
    """Raises: StartError where the file cannot be written."""
    path = config.barnabas_audit_log
    if path:
        from barnabas.broker.rim.audit_log import AuditLog

        try:
            AuditLog(path).close()
        except OSError as error:
            raise StartError(
                f"cannot write the audit log {path}: {error.strerror or error}"
            ) from error


def _listen(host: str, port: int, option: str = "--port") -> socket.socket:
    """A socket that listens there. Raises: StartError, which names the option to be changed."""
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        sock.listen(1024)
    except OSError as error:
        sock.close()
        if error.errno == 98:
            raise StartError(
                f"port {port} on {host} is in use: choose another with {option}"
                f"{'' if option == 'listeners' else ' N'} (0: any free one)"
            ) from error
        raise StartError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    sock.setblocking(False)
    return sock


def _listen_for_each(
    config: BrokerConfig,
    ports: Sequence[int] | None,
    listeners: Sequence[ListenerConfig] | None = None,
) -> list[socket.socket]:
    """A socket for each broker, listener by listener.

    Takes: ports, of the brokers, for the first listener; else they are those after the first
           broker's; for 0 free ones. listeners: None for all.
    """
    count = config.barnabas_brokers
    if ports is not None and len(ports) not in (1, count):
        raise StartError(
            f"--port names {len(ports)} ports for {count} broker{'s' * (count != 1)}: name one "
            f"port, or one for each of them (--brokers {len(ports)})"
        )
    sockets = []
    for listener in config.listeners if listeners is None else listeners:
        host, port = listener.endpoint.host, listener.endpoint.port
        if listener.path is not None:
            sockets.append(_listen_at_path(listener.path))
            continue
        if listener is not config.listeners[0] or ports is None or len(ports) == 1:
            of_brokers = [port + at if port else 0 for at in range(count)]
        else:
            of_brokers = list(ports)
        if max(of_brokers) > 65535:
            raise StartError(f"{count} brokers from port {port} on: the last port is 65535")
        option = "--port" if listener is config.listeners[0] else "listeners"
        sockets += [_listen(host, one, option) for one in of_brokers]
    return sockets


def _listen_at_path(path: str) -> socket.socket:
    """A socket in the file system. Raises: StartError."""
    from barnabas.broker.rim.server import unix_listener_at

    try:
        return unix_listener_at(path)
    except OSError as error:
        raise StartError(f"cannot listen on unix://{path}: {error.strerror or error}") from error


def _log_as_json() -> None:
    from barnabas.broker.rim.log_format import JsonFormatter

    for handler in logging.getLogger().handlers:
        handler.setFormatter(JsonFormatter())


def _set_log_levels(texts: Sequence[str]) -> None:
    """Raises: StartError where there is no such level."""
    if not texts:
        return
    from barnabas.broker.settings.loggers import LEVELS

    for text in texts:
        name, _, level = text.rpartition("=")
        if level.upper() not in LEVELS:
            raise StartError(
                f"--log-level {text}: it must be one of {', '.join(LEVELS)}, or LOGGER=LEVEL"
            )
        logging.getLogger(name or None).setLevel(LEVELS[level.upper()])


def _check_metrics_library() -> None:
    try:
        import prometheus_client  # noqa: F401
    except ModuleNotFoundError as error:
        raise StartError(
            "--metrics-port needs more than the broker does: " + install_command("metrics")
        ) from error


def _listen_beside(options: argparse.Namespace, config: Any) -> Sockets:
    """The sockets of what is served over HTTP, by the options that ask for it."""
    sockets = {}
    if config.barnabas_metrics_port >= 0:
        option = "--metrics-port"
        sockets[option] = _listen(
            config.barnabas_metrics_host, config.barnabas_metrics_port, option
        )
    if config.barnabas_console_port >= 0:
        option = "--console-port"
        sockets[option] = _listen(
            config.barnabas_console_host, config.barnabas_console_port, option
        )
    if config.barnabas_replication_port >= 0:
        option = REPLICATION_PORT
        sockets[option] = _listen(
            config.barnabas_replication_host, config.barnabas_replication_port, option
        )
    if options.test_control is not None:
        option = "--test-control"
        sockets[option] = _listen(DEFAULT_HOST, options.test_control, option)
    return sockets


def _stand_by(config: BrokerConfig, leader: str) -> int:
    """Be the standby of a leader until a signal comes. Gives the exit code."""
    from barnabas.broker.replication.rim.standby import Standby
    from barnabas.storage.directory.log_directory import LogDirectoryError

    host, colon, port = leader.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) <= 65535:
        raise StartError(f"--standby-of {leader}: it must have the form HOST:PORT")
    host = host.strip("[]")
    _check_link(config, STANDBY_OF, host)
    try:
        Standby(config, (host, int(port))).run()
    except LogDirectoryError as error:
        raise StartError(str(error)) from error
    except OSError as error:
        raise _unusable_data_directory(config, error) from error
    return 0


def _check_replication(options: argparse.Namespace, config: BrokerConfig) -> None:
    """Raises: StartError where a standby cannot follow such a broker, or strangers could."""
    if config.barnabas_replication_port < 0:
        return
    _check_link(config, "barnabas.replication.host", config.barnabas_replication_host)
    if options.test_control is not None:
        raise StartError(
            "--test-control and barnabas.replication.port do not go together: what a test has the "
            "disk forget, a standby would keep"
        )


def _check_link(config: BrokerConfig, setting: str, host: str) -> None:
    """Raises: StartError where the link between leader and standby is not protected."""
    from barnabas.broker.replication.rim import link_security
    from barnabas.broker.rim.tls import TlsError

    try:
        link_security.check_secret(config)
        link_security.check_address(config, setting, host)
        if setting != STANDBY_OF:
            link_security.leaders_tls(config)
        if setting == STANDBY_OF or config.barnabas_lease_url:
            link_security.standbys_tls(config)
    except (link_security.LinkSecurityError, TlsError) as error:
        raise StartError(str(error)) from error


def _disk(options: argparse.Namespace, config: BrokerConfig) -> Any:
    """The disk that the broker works on; None for the machine's own, as it is."""
    if options.test_control is not None:
        return _forgetful_disk(config.data_dir)
    if config.barnabas_replication_port >= 0:
        from barnabas.broker.replication.replicated_disk import ReplicatedDisk
        from barnabas.storage.disk import OsDisk

        return ReplicatedDisk(OsDisk(), config.data_dir)
    return None


def _start(options: argparse.Namespace) -> int:
    began = time.perf_counter()
    if options.test_clock_ahead and options.test_control is None:
        raise StartError("--test-clock-ahead needs --test-control PORT")
    _set_log_levels(options.log_levels)
    config = _read_config(options)
    if config.barnabas_log_format == "json":
        _log_as_json()
    if config.barnabas_metrics_port >= 0:
        _check_metrics_library()
    with contextlib.suppress(ValueError, OSError):  # the more there are, the fewer files are closed
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if options.standby_of is not None:
        if config.barnabas_lease_url:
            raise StartError("--standby-of: with barnabas.lease.url the lease decides who follows")
        return _stand_by(config, options.standby_of)
    _check_replication(options, config)
    if config.barnabas_lease_url:
        member = _wait_until_leading(options, config)
        began = time.perf_counter()
        return 0 if member is None else _open_and_serve(options, config, began, member)
    return _open_and_serve(options, config, began)


def _wait_until_leading(options: argparse.Namespace, config: BrokerConfig) -> PairMember | None:
    """Be the other node's standby until the lease is this one's; None where a signal came first."""
    from barnabas.broker.replication.lease_record import LeaseRecordError
    from barnabas.broker.replication.rim.pair_member import PairMember, PairSettingsError
    from barnabas.storage.directory.log_directory import LogDirectoryError

    try:
        for sock in (*_listen_for_each(config, options.port),
                     *_listen_beside(options, config).values()):  # fmt: skip
            sock.close()  # what cannot be listened at is told now
        member = PairMember(config, lambda some: _listen_for_each(config, options.port, some))
        _load_what_serves(with_metrics=config.barnabas_metrics_port >= 0)
        return member if member.wait_until_leading() else None
    except (PairSettingsError, LeaseRecordError, LogDirectoryError) as error:
        raise StartError(str(error)) from error
    except OSError as error:
        raise _unusable_data_directory(config, error) from error


def _load_what_serves(*, with_metrics: bool) -> None:
    """Import now what a take-over would wait for."""
    import anyio  # noqa: F401

    import barnabas.broker.replication.replicated_disk
    import barnabas.broker.replication.rim.lease_endpoint
    import barnabas.broker.rim.daemon.opening

    if with_metrics:
        import barnabas.broker.metrics.rim.endpoint
        import barnabas.broker.metrics.rim.measured_replication  # noqa: F401


def _open_and_serve(
    options: argparse.Namespace,
    config: BrokerConfig,
    began: float,
    member: PairMember | None = None,
) -> int:
    """Open the data directory, and serve. Takes: member, whose lease lets this node lead."""
    keeper = None if member is None else member.keeper
    signals = _Signals()  # handled before a client, or a script that waits for the port, sees it
    socks = _listen_for_each(config, options.port) if member is None else member.reception.take()
    side_sockets = _listen_beside(options, config)
    from barnabas.broker.rim.clocks import steady_ms, wall_ms
    from barnabas.broker.rim.daemon.opening import open_broker
    from barnabas.broker.rim.flusher import sync_together
    from barnabas.storage.directory.log_directory import LogDirectoryError
    from barnabas.storage.disk import sync_file_system
    from barnabas.storage.files.checkpoints import STANDBY_NOTE_NAME

    gc.collect()
    if member is None and os.path.exists(f"{config.data_dir}/{STANDBY_NOTE_NAME}"):
        sync_file_system(config.data_dir)  # a standby that was killed has not done it
    try:
        with _no_garbage_collection():
            broker = open_broker(
                config,
                SystemIds(),
                # both as the server's clock has them, else all that is loaded ages by the lead
                now_ms=steady_ms() + options.test_clock_ahead,
                wall_ms=wall_ms() + options.test_clock_ahead,
                sync=sync_together,
                disk=_disk(options, config),
                leader_epoch=0 if keeper is None else keeper.leader_epoch,
            )
    except LogDirectoryError as error:
        raise StartError(str(error)) from error
    except OSError as error:
        raise _unusable_data_directory(config, error) from error
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.callbacks.append(_freeze_survivors)
    return _serve(_Daemon(broker, socks, side_sockets, began, options, member, signals))


def _freeze_survivors(phase: str, info: Mapping[str, int]) -> None:
    """Leave what outlived a full collection out of the next ones, as what a start has loaded.

    A full collection looks at all state that came since, without a break. What is frozen and then
    forgotten goes all the same, unless it is a part of a cycle: connections that are open at that
    time, once in millions of requests.
    """
    if phase == "stop" and info["generation"] == 2:
        gc.freeze()


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """What a start loads stays: looking it through while it grows would double the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _serve(daemon: _Daemon) -> int:
    """Serve until a signal, the end of standard input or a failure. Gives the exit code."""
    import anyio

    try:
        code = anyio.run(daemon.run, backend="asyncio", backend_options=daemon.loop_options())
        if daemon.is_deposed:
            from barnabas.broker.replication.rim.pair_member import begin_anew

            begin_anew()
        return code
    finally:
        # the interpreter takes its handlers away before it is gone
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)


class _Daemon:
    """One broker in its event loop, from the moment it listens until its logs are closed."""

    def __init__(
        self,
        broker: Any,
        socks: Sequence[socket.socket],
        side_sockets: Sockets,
        began: float,
        options: argparse.Namespace,
        member: PairMember | None,
        signals: _Signals,
    ) -> None:
        self._signals = signals
        self._member, self._keeper = member, None if member is None else member.keeper
        self.is_deposed = False
        self._broker, self._socks, self._side_sockets = broker, socks, side_sockets
        self._began, self._options = began, options
        self._metrics = _Metrics() if "--metrics-port" in side_sockets else None
        self._input_has_ended = False

    async def run(self) -> int:
        """Serve; gives the exit code."""
        options, loop = self._options, asyncio.get_running_loop()
        server = self._server(loop)
        console = _console(server, self._side_sockets)
        asked_to_end = asyncio.Event()

        def end_with_input() -> None:
            self._input_has_ended = True
            asked_to_end.set()

        log_output = _log_in_a_thread()
        self._signals.call(lambda: loop.call_soon_threadsafe(asked_to_end.set))
        if options.stop_at_end_of_input or options.remove_data_at_end_of_input:
            _on_end_of_input(lambda: loop.call_soon_threadsafe(end_with_input))
        _announce(server, self._broker, self._began, console, quiet=options.quiet)
        if options.ready_file:
            _write_ready_file(options.ready_file, server.addresses)
        if self._member is not None:
            server.on_deposed(asked_to_end.set)
            self._member.reception.hand_over(server.adopt)
        await _until_either(asked_to_end, server.failure)
        if console is not None:
            console.close()
        await self._close(server)
        if server.failed:
            self._tell_failure(server.failure.result())
        self._clear_away()
        log_output.finish()
        return 1 if server.failed else 0

    async def _close(self, server: Any) -> None:
        """Close the logs, and give the lease up; or leave both to the node that leads now."""
        if REPLICATION_PORT not in self._side_sockets:
            server.close()
        else:
            await server.end()
            self.is_deposed = server.is_deposed

    def loop_options(self) -> dict[str, Any]:
        """What the loop is made with, for anyio."""
        return {} if self._metrics is None else {"loop_factory": self._metrics.new_loop}

    def _server(self, loop: asyncio.AbstractEventLoop) -> Any:
        """The server, with what is served beside it."""
        options, metrics = self._options, self._metrics
        core = (self._broker, self._socks, loop)
        if options.test_control is not None:
            server = _controlled_server(*core, self._side_sockets, options, metrics)
        elif REPLICATION_PORT in self._side_sockets:
            server = self._leaders_server(*core, self._side_sockets[REPLICATION_PORT])
        elif metrics is not None:
            server = metrics.server(*core)
        else:
            from barnabas.broker.rim.server import Server

            server = Server(*core)
        if metrics is not None:
            metrics.serve(server, self._side_sockets["--metrics-port"])
        return server

    def _leaders_server(self, *arguments: Any) -> Any:
        """The server of a broker that a standby can follow."""
        if self._keeper is not None:
            arguments = (*arguments, self._keeper)
        if self._metrics is not None:
            server = self._metrics.leaders_server(*arguments, is_leased=self._keeper is not None)
        elif self._keeper is not None:
            from barnabas.broker.replication.rim.lease_endpoint import LeasedServer

            server = LeasedServer(*arguments)
        else:
            from barnabas.broker.replication.rim.leader_endpoint import ReplicatedServer

            server = ReplicatedServer(*arguments)
        if self._keeper is None:
            logger.info("a standby connects at %s:%d", *server.replication_address)
        return server

    def _tell_failure(self, error: Exception) -> None:
        from barnabas.storage.disk import may_have_lost_pages

        logger.critical(
            "stopping: %s",
            _explain(error, self._broker),
            exc_info=None if isinstance(error, OSError) else error,
        )
        if isinstance(error, OSError) and may_have_lost_pages(error):
            self._broker.logs.note_failure()

    def _clear_away(self) -> None:
        if self._options.ready_file:
            with contextlib.suppress(OSError):
                os.unlink(self._options.ready_file)
        if self._input_has_ended and self._options.remove_data_at_end_of_input:
            shutil.rmtree(self._broker.config.data_dir, ignore_errors=True)


async def _until_either(asked_to_end: asyncio.Event, failure: asyncio.Future[Exception]) -> None:
    """Until the broker is asked to end, or has failed."""
    import anyio

    async with anyio.create_task_group() as group:

        async def wait_for_end() -> None:
            await asked_to_end.wait()
            group.cancel_scope.cancel()

        async def wait_for_failure() -> None:
            # bare, its cancelling at a signal would cancel the future: a failure to `close`
            await asyncio.shield(failure)
            group.cancel_scope.cancel()

        group.start_soon(wait_for_end)
        group.start_soon(wait_for_failure)


def _forgetful_disk(data_dir: str) -> Any:
    """A disk that can lose what was not flushed."""
    from barnabas.broker.control.forgetful_disk import ForgetfulDisk

    return ForgetfulDisk(data_dir)


class _Metrics:
    """What measures a server from its loop on, and shows it."""

    def __init__(self) -> None:
        from barnabas.broker.metrics.rim.measured import Instruments, TimedSelector

        self._instruments = Instruments()
        self._selector = TimedSelector(self._instruments.stalls)

    def new_loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that is measured; there is one."""
        return asyncio.SelectorEventLoop(self._selector)

    def server(self, *arguments: Any, controlled: bool = False) -> Any:
        """The server that is measured."""
        if controlled:
            from barnabas.broker.metrics.rim.measured_control import MeasuredControlledServer

            return MeasuredControlledServer(self._instruments, self._selector, *arguments)
        from barnabas.broker.metrics.rim.measured import MeasuredServer

        return MeasuredServer(self._instruments, self._selector, *arguments)

    def leaders_server(self, *arguments: Any, is_leased: bool) -> Any:
        """The server of a broker that a standby can follow, measured."""
        from barnabas.broker.metrics.rim import measured_replication

        made = (
            measured_replication.MeasuredLeasedServer
            if is_leased
            else measured_replication.MeasuredReplicatedServer
        )
        return made(self._instruments, self._selector, *arguments)

    def serve(self, server: Any, sock: socket.socket) -> None:
        """Show its metrics by that socket."""
        from barnabas.broker.metrics.rim.endpoint import MetricsEndpoint
        from barnabas.broker.metrics.table import Detail

        detail = Detail(server.broker.config.barnabas_metrics_detail)
        logger.info("metrics on %s", MetricsEndpoint(server, sock, detail).url)


def _controlled_server(
    broker: Any,
    socks: Sequence[socket.socket],
    loop: asyncio.AbstractEventLoop,
    side_sockets: Sockets,
    options: argparse.Namespace,
    metrics: _Metrics | None,
) -> Any:
    """A server whose faults and time a test commands, and the endpoint where it does."""
    from barnabas.broker.control.rim.clock import ControlledClock
    from barnabas.broker.control.rim.endpoint import ControlEndpoint
    from barnabas.broker.control.rim.server import ControlledServer

    clock = ControlledClock()
    clock.advance(options.test_clock_ahead)
    server = (
        ControlledServer(broker, socks, loop, clock)
        if metrics is None
        else metrics.server(broker, socks, loop, clock, controlled=True)
    )
    endpoint = ControlEndpoint(server, side_sockets["--test-control"])
    logger.warning(
        "TEST CONTROL on %s: whoever reaches it can lose answers and move the "
        "clock. It is for tests of clients, and nothing else",
        endpoint.url,
    )
    return server


def _console(server: Any, side_sockets: Sockets) -> Any:
    """The page that shows the broker; None where nobody asked for it."""
    sock = side_sockets.get("--console-port")
    if sock is None:
        return None
    from barnabas.broker.console.rim.endpoint import Console
    from barnabas.broker.rim.http_server import LOOPBACK

    host = sock.getsockname()[0]
    if host not in LOOPBACK:
        logger.warning("the console listens on %s: whoever reaches it can read all records", host)
    return Console(server, sock)


def _on_end_of_input(do: Callable[[], object]) -> None:
    """Do it when standard input ends. What comes there before its end is thrown away."""

    def read() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 4096):
                pass
        with contextlib.suppress(RuntimeError):  # the loop is closed
            do()

    threading.Thread(target=read, name="end-of-input", daemon=True).start()


def _shown(addresses: Sequence[tuple[str, int]]) -> str:
    """Where clients on this machine reach the brokers, in the form of `bootstrap.servers`."""
    return ",".join(
        _address_text((DEFAULT_HOST if host in ("0.0.0.0", "::") else host, port))
        for host, port in addresses
    )


def _address_text(address: tuple[str, int]) -> str:
    host, port = address
    return host if host.startswith("unix://") else f"{host}:{port}"


def _write_ready_file(path: str, addresses: Sequence[tuple[str, int]]) -> None:
    """Say in a file where the broker listens: `HOST:PORT`, whole from the first look on; of several
    brokers each, with commas between.
    """
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "w", encoding="ascii") as file:
        file.write(f"{_shown(addresses)}\n")
    os.replace(temporary, path)


def _log_in_a_thread() -> LogOutput:
    """Put what writes log lines in a thread in the place of what writes them at once."""
    from barnabas.broker.rim.log_output import LogOutput

    output = LogOutput(2)
    root = logging.getLogger()
    for handler in root.handlers[:]:
        if type(handler) is logging.StreamHandler and handler.stream is sys.stderr:
            output.setFormatter(handler.formatter)
            root.removeHandler(handler)
    root.addHandler(output)
    return output


class _Signals:
    """What asks the process to end, from before its ports are open to the end of the process.

    One that comes while the data directory is opened lets that go on, and the daemon ends as soon
    as it serves: so it ends cleanly. A second one then ends the process at once, as it is. One that
    comes while the logs are closed must not end that half way.
    """

    def __init__(self) -> None:
        self._do: Callable[[], object] | None = None
        self._has_come = False
        for number in SIGNALS:
            if (
                number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN
            ):  # nohup: it stays when its terminal goes
                signal.signal(number, self._on_signal)

    def call(self, do: Callable[[], object]) -> None:
        """Have this done at each signal, and now if one has come."""
        self._do = do
        if self._has_come:
            logger.info("a signal has come while the broker started: it stops now")
            do()

    def _on_signal(self, number: int, frame: object) -> None:
        if self._do is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._do()
        elif self._has_come:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        else:
            self._has_come = True


def _explain(error: Exception, broker: Any) -> str:
    if isinstance(error, OSError):
        return (
            f"the data directory {broker.config.data_dir} failed: {error.strerror or error}"
            f"{f' ({error.filename})' if error.filename else ''}; nothing was acknowledged after "
            "that. Start again when the disk is well"
        )
    return (
        f"an invariant does not hold: {error!r}. What was acknowledged is in the logs; please "
        "report this"
    )


def _what_clients_need(listener: ListenerConfig) -> str:
    """What clients have to say on a listener that is not plain; empty where they need nothing."""
    if not (listener.has_tls or listener.has_sasl):
        return ""
    return (
        f"client.properties needs security.protocol={listener.security_protocol}, and what "
        "docs/SECURITY.md says of it"
    )


def _other_listeners(server: Any, config: BrokerConfig) -> list[str]:
    """Where the broker listens beside its first listener, with what is spoken there."""
    return [
        str(listener.config.endpoint._replace(host=listener.address[0], port=listener.address[1]))
        + f" ({listener.config.security_protocol})"
        for listener in server.listeners
        if listener.config is not config.listeners[0]
    ]


def _announce(server: Any, broker: Any, began: float, console: Any, *, quiet: bool) -> None:
    where = ",".join(map(_address_text, server.addresses))
    others = _other_listeners(server, broker.config)
    if quiet:
        logger.warning("listening on %s", ",".join((where, *others)))
        if console is not None:
            logger.warning("the console is at %s", console.url)
        return
    took_ms = (time.perf_counter() - began) * 1000
    address = _shown(server.addresses)
    needs = _what_clients_need(broker.config.listeners[0])
    kcat = "kcat -F client.properties" if needs else "kcat"
    text = (
        f"barnabas {__version__} listens on {where} "
        f"(ready after {took_ms:.0f} ms, process {os.getpid()})\n"
        f"  data:     {os.path.abspath(broker.config.data_dir)}\n"
        + (f"  security: {needs}\n" if needs else "")
        + "".join(f"  besides:  {other}\n" for other in others)
        + f"  produce:  echo hello | {kcat} -b {address} -t greetings -P\n"
        f"  consume:  {kcat} -b {address} -t greetings -C -e\n"
        + (f"  console:  {console.url}\n" if console is not None else "")
        + "  stop:     Ctrl-C"
    )
    try:
        print(text, flush=True)
    except OSError as error:  # a full disk, or a reader that is gone: no reason to end
        logger.warning(
            "listening on %s; standard output cannot be written: %s",
            where,
            error.strerror or error,
        )
        with open(os.devnull, "wb") as nothing:
            os.dup2(
                nothing.fileno(), 1
            )  # the interpreter writes what is left there at its end, and would fail again


if __name__ == "__main__":
    sys.exit(main())
