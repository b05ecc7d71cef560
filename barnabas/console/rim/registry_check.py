"""The check, at startup, of the settings by which the console connects to a schema registry."""

from __future__ import annotations

import os

from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.setting import ConfigError
from barnabas.schemas.errors import SchemaError
from barnabas.schemas.registry import RegistrySettings, checked_urls, tls_context


def check_registry(config: BrokerConfig) -> None:
    """Check the settings by which the console connects to a schema registry. Raises:
    ConfigError.
    """
    urls = config.barnabas_console_registry
    option = "--console-registry (barnabas.console.registry)"
    if config.barnabas_console_port < 0:
        raise ConfigError(f"{option} is for the console: pass --console-port, too")
    if "@" in urls:
        raise ConfigError(
            f"{option}: give the user in barnabas.console.registry.user, and the password in "
            "barnabas.console.registry.password: the console shows the address"
        )
    try:
        checked_urls(urls, option)
    except SchemaError as error:
        raise ConfigError(str(error)) from error
    _check_login(config)


def _check_login(config: BrokerConfig) -> None:
    """Check the user, the token and the files with which the console logs in to a schema registry.
    Raises: ConfigError.
    """
    prefix = "barnabas.console.registry"
    if config.barnabas_console_registry_user and config.barnabas_console_registry_token:
        raise ConfigError(f"set {prefix}.user or {prefix}.token, not both")
    ca = config.barnabas_console_registry_ca_file
    certificate = config.barnabas_console_registry_certificate_file
    key = config.barnabas_console_registry_key_file
    if key and not certificate:
        raise ConfigError(f"{prefix}.key.file needs {prefix}.certificate.file")
    for name, path in (("ca", ca), ("certificate", certificate), ("key", key)):
        if path and not os.path.isfile(path):
            raise ConfigError(f"{prefix}.{name}.file: there is no file {path}")
    password = config.barnabas_console_registry_key_password or ""
    for name, settings in (
        ("ca", RegistrySettings("", ca=ca)),
        (
            "certificate",
            RegistrySettings("", certificate=certificate, key=key, key_password=password),
        ),
    ):
        if not (settings.ca or settings.certificate):
            continue
        try:
            tls_context(settings)
        except OSError as error:
            raise ConfigError(
                f"{prefix}.{name}.file: it cannot be read: {error.strerror or error}; it has to be "
                f"a PEM file{'' if name == 'ca' else ', with its key or with the right key.file'}"
            ) from error
