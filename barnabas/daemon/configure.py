"""Reads the settings for a start from the options, a properties file, the environment, and the
files that settings name.

Every file that a setting names is read here, before the broker listens, so that a mistake is
reported in one line before anything is opened.
"""

from __future__ import annotations

import argparse
import logging
import os
import threading
from collections.abc import Mapping, Sequence

from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.exposure import is_secret, warnings_of, without_password
from barnabas.broker.settings.listeners import JWKS_URL
from barnabas.broker.settings.loggers import LEVELS
from barnabas.broker.settings.properties import read_properties
from barnabas.broker.settings.setting import ConfigError
from barnabas.daemon.arguments import StartError
from barnabas.installing import install_command

logger = logging.getLogger("barnabas")


def read_config(options: argparse.Namespace) -> BrokerConfig:
    """Return all settings, with the contents of the files that they name. Raises: StartError.

    This is one long function, with a line for each option that overrides a setting.
    """
    try:
        properties = _properties_of(options.config) if options.config else {}
        of_file = set(properties)
        secret_files = [options.config] if _has_secrets(properties) else []
        for setting in options.settings:
            key, equals, value = setting.partition("=")
            if not equals:
                raise StartError(f"--set {key[:40]}: it must have the form KEY=VALUE")
            properties[key.strip()] = value
            of_file.discard(key.strip())
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
        if options.console_writes:
            properties["barnabas.console.writes"] = "true"
        if options.console_registry is not None:
            properties["barnabas.console.registry"] = options.console_registry
        secret_files += _secret_files(properties)
        properties = _with_provided_values(properties)
        if options.port is not None or options.host is not None:
            config = BrokerConfig.from_properties(properties, of_file=of_file)
            properties["listeners"] = _moved_listeners(config, options.host, options.port)
        config = BrokerConfig.from_properties(properties, of_file=of_file)
        _read_users(config)
        _make_credentials(config)
        _read_certificates(config)
        _read_signing_keys(config)
        _check_audit_log(config)
        if config.barnabas_console_registry:
            from barnabas.console.rim.registry_check import check_registry

            check_registry(config)
    except ConfigError as error:
        raise StartError(str(error)) from error

    arguments = _arguments_with_values(options)
    for warning in (*config.warnings, *warnings_of(config, arguments, secret_files)):
        logger.warning("%s", warning)
    return config


def _properties_of(path: str) -> dict[str, str]:
    """The content of the file of --config. Raises: StartError, ConfigError."""
    try:
        with open(path, encoding="utf-8") as file:
            return read_properties(file.read())
    except OSError as error:
        raise StartError(f"cannot read the configuration {path}: {error.strerror}") from error


def _has_secrets(properties: Mapping[str, str]) -> bool:
    """Whether the settings themselves contain a secret."""
    return any(is_secret(name) and "${" not in text for name, text in properties.items())


def _secret_files(properties: Mapping[str, str]) -> list[str]:
    """The files from which the values of secret settings come. Raises: ConfigError."""
    if not any("${" in text for text in properties.values()):
        return []
    from barnabas.broker.settings.config_providers import files_of

    return files_of({name: text for name, text in properties.items() if is_secret(name)
                     or name.startswith("config.")})  # fmt: skip


def _arguments_with_values(options: argparse.Namespace) -> list[str]:
    """The names of the settings that are given on the command line, where every user of the machine
    can read their values.
    """
    return [setting.partition("=")[0].strip() for setting in options.settings]


def _with_provided_values(properties: dict[str, str]) -> dict[str, str]:
    """The settings with the values from files and the environment. Raises: ConfigError."""
    if not any("${" in text or name.startswith("config.") for name, text in properties.items()):
        return properties
    from barnabas.broker.settings.config_providers import resolve

    return resolve(properties, os.environ)


def _moved_listeners(config: BrokerConfig, host: str | None, ports: Sequence[int] | None) -> str:
    """The value of `listeners`, with the first listener moved to --host and --port.

    Raises: StartError, ConfigError.
    """
    for port in ports or ():
        if not 0 <= port <= 65535:
            raise StartError(f"--port {port}: a port is between 0 and 65535")
    listeners = config.listeners
    first = listeners[0].endpoint
    if listeners[0].path is not None:
        raise StartError(f"--host and --port have no effect on {first}: leave them out")
    moved = first._replace(
        host=first.host if host is None else host, port=ports[0] if ports else first.port
    )
    return ",".join(map(str, (moved, *(one.endpoint for one in listeners[1:]))))


def _read_users(config: BrokerConfig) -> None:
    """Read the users of barnabas.users.file. Raises: StartError, ConfigError."""
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
    """Compute the salted and iterated credentials of the users file, in a thread for which no
    client waits.
    """
    mechanisms = {name for one in config.listeners if one.has_sasl for name in one.sasl_mechanisms}
    if not config.users or not mechanisms:
        return
    from barnabas.broker.security.scram import MECHANISMS
    from barnabas.broker.security.users import make_credentials

    wanted = [mechanism for name, mechanism in MECHANISMS.items() if name in mechanisms]
    arguments = (config.users, wanted, config.user_credentials, lambda: os.urandom(16))
    threading.Thread(target=make_credentials, args=arguments, name="salting", daemon=True).start()


def _read_certificates(config: BrokerConfig) -> None:
    """Read the certificates of the listeners with TLS. Raises: StartError."""
    for listener in config.listeners:
        if listener.has_tls:
            from barnabas.broker.rim.tls import TlsError, TlsListener

            try:
                listener.tls = TlsListener(listener.tls_settings(config.explicit))
            except TlsError as error:
                raise StartError(f"{listener.endpoint}: {error}") from error


def _read_signing_keys(config: BrokerConfig) -> None:
    """If a listener uses OAUTHBEARER, read the keys that verify the signatures of tokens. Raises:
    StartError.
    """
    for listener in config.listeners:
        if listener.oauth_keys is not None and listener[JWKS_URL]:
            from barnabas.broker.security.oauth import KeySetError
            from barnabas.daemon.jwks import JwksReader

            try:
                JwksReader(listener, listener.oauth_keys).start()
            except KeySetError as error:
                url = without_password(listener[JWKS_URL])
                raise StartError(f"{JWKS_URL}={url}: {error}") from error


def _check_audit_log(config: BrokerConfig) -> None:
    """Check that the audit log's file can be written. Raises: StartError."""
    path = config.barnabas_audit_log
    if path:
        from barnabas.broker.rim.audit_log import AuditLog

        try:
            AuditLog(path).close()
        except OSError as error:
            raise StartError(
                f"cannot write the audit log {path}: {error.strerror or error}"
            ) from error


def set_log_levels(texts: Sequence[str]) -> None:
    """Set the levels of loggers. Raises: StartError for an unknown level."""
    if not texts:
        return

    for text in texts:
        name, _, level = text.rpartition("=")
        if level.upper() not in LEVELS:
            raise StartError(
                f"--log-level {text}: it must be one of {', '.join(LEVELS)}, or LOGGER=LEVEL"
            )
        logging.getLogger(name or None).setLevel(LEVELS[level.upper()])


def check_metrics_library() -> None:
    """Raise StartError if the library that --metrics-port needs is missing."""
    try:
        import prometheus_client  # noqa: F401
    except ModuleNotFoundError as error:
        raise StartError(
            "--metrics-port needs a further package: " + install_command("metrics")
        ) from error


def log_as_json() -> None:
    """Write the log as JSON from now on."""
    from barnabas.process.log_format import JsonFormatter

    for handler in logging.getLogger().handlers:
        handler.setFormatter(JsonFormatter())
