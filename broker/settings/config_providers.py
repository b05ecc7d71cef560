"""Finds the values of settings that are stored elsewhere: in files, or in the environment.

    config.providers=file,env,directory
    ${file:/etc/barnabas/secrets:key}     the value of that key in a properties file
    ${directory:/run/secrets:name}        the content of the file of that name there
    ${env:NAME}                           an environment variable

A value may contain several references, and text around them. A provider may have any name if
`config.providers.NAME.class` says which of Apache Kafka's providers it is. Without that setting,
its name must be one of those above. `config.providers.NAME.param.allowed.paths` limits which files
may be read, and `config.providers.env.param.allowlist.pattern` limits which variables. If a
reference cannot be resolved, the start fails. (Apache Kafka leaves the text as it is, so that a
password could be `${env:...}`.)

Source: KIP-297, KIP-421, KIP-887 (env), KIP-993 (allowed.paths).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from barnabas.broker.settings.properties import read_properties
from barnabas.broker.settings.setting import ConfigError

PROVIDERS = "config.providers"
_REFERENCE = re.compile(r"\$\{([^}:]*):(?:([^}:]*):)?([^}:]*)\}")
_PACKAGE = "org.apache.kafka.common.config.provider."
_CLASSES = {
    f"{_PACKAGE}FileConfigProvider": "file",
    f"{_PACKAGE}DirectoryConfigProvider": "directory",
    f"{_PACKAGE}EnvVarConfigProvider": "env",
}
KAFKAS_CLASSES = {name: kafkas for kafkas, name in _CLASSES.items()}
Find = Callable[[str, str], str | None]


def resolve(properties: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Resolve all references in the settings. The result omits the settings of the providers
    themselves.

    Raises: ConfigError, whose text shows no value.
    """
    providers = _providers(properties, environment)
    return {
        name: _REFERENCE.sub(partial(_value, name, providers), text)
        for name, text in properties.items()
        if name != PROVIDERS and not name.startswith(f"{PROVIDERS}.")
    }


def files_of(properties: Mapping[str, str]) -> list[str]:
    """The files from which settings take values, without duplicates. Raises: ConfigError."""
    kinds = {name: kind for name, kind, _ in _named_providers(properties)}
    files = []
    for text in properties.values():
        for provider, path, key in _REFERENCE.findall(text):
            if kinds.get(provider) == "file":
                files.append(path)
            elif kinds.get(provider) == "directory":
                files.append(str(Path(path, key)))
    return list(dict.fromkeys(files))


def _value(name: str, providers: Mapping[str, Find], match: re.Match[str]) -> str:
    """The value of a reference ${PROVIDER:PATH:KEY} in a setting. Takes: name, the setting's name.
    Raises: ConfigError.
    """
    provider, path, key = match.groups()
    if provider not in providers:
        if provider in _CLASSES.values():
            raise ConfigError(f"{name}: {match[0]} needs {PROVIDERS}={provider}")
        return match[0]  # not a reference, since no provider has this name
    try:
        value = providers[provider](path or "", key)
    except ConfigError as error:
        raise ConfigError(f"{name}: {match[0]}: {error}") from error
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise ConfigError(f"{name}: {match[0]} cannot be read: {reason}") from error
    except ValueError as error:  # a NUL in the path, which system calls refuse
        shown = match[0].replace("\0", "\\0")
        raise ConfigError(f"{name}: {shown} cannot be read: a path has no NUL") from error
    if value is None:
        raise ConfigError(f"{name}: {match[0]} is not there")
    return value


def _providers(properties: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, Find]:
    """The providers by their names. Each is a function that finds a value."""
    providers: dict[str, Find] = {}
    for name, kind, prefix in _named_providers(properties):
        allowed = properties.get(f"{prefix}param.allowed.paths", "")
        paths = [
            Path(os.path.normpath(part.strip())) for part in allowed.split(",") if part.strip()
        ]
        if kind == "env":
            pattern = properties.get(f"{prefix}param.allowlist.pattern", ".*").strip()
            providers[name] = _in_environment(environment, prefix, pattern)
        elif kind == "file":
            providers[name] = _in_files(paths)
        else:
            providers[name] = _in_directories(paths)
    return providers


def _named_providers(properties: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """The name, the kind and the settings' prefix of each provider. Raises: ConfigError."""
    for name in filter(None, (part.strip() for part in properties.get(PROVIDERS, "").split(","))):
        prefix = f"{PROVIDERS}.{name}."
        class_name = properties.get(f"{prefix}class", "").strip()
        kind = _CLASSES.get(class_name) if class_name else name
        if kind is None or kind not in _CLASSES.values():
            raise ConfigError(
                f"{prefix}class={class_name}: the provider {name} must be one of "
                f"{', '.join(_CLASSES)}"
            )
        yield name, kind, prefix


def _in_environment(environment: Mapping[str, str], prefix: str, pattern_text: str) -> Find:
    """The function that finds environment variables whose names match the allowed pattern."""
    try:
        pattern = re.compile(pattern_text)
    except re.error as error:
        raise ConfigError(f"{prefix}param.allowlist.pattern={pattern_text}: {error}") from error

    def find(path: str, key: str) -> str | None:
        return environment.get(key) if pattern.fullmatch(key) else None

    return find


def _in_files(allowed: list[Path]) -> Find:
    """The function that finds keys in properties files, below the allowed paths if there are
    any.
    """

    def find(path: str, key: str) -> str | None:
        _check_allowed(Path(path), allowed)
        try:
            return read_properties(Path(path).read_text(encoding="utf-8")).get(key)
        # Replace the text of the error: it shows four characters of the file, which may belong to a
        # password.
        except ConfigError:
            raise ConfigError(
                "a \\u in the file is not followed by four hexadecimal digits; write \\\\ for a "
                "backslash"
            ) from None

    return find


def _in_directories(allowed: list[Path]) -> Find:
    """The function that finds values in directories with one file for each key, such as mounted
    secrets.
    """

    def find(path: str, key: str) -> str | None:
        file = _normal(Path(path, key))
        _check_allowed(file, allowed)
        if file.parent != _normal(path):
            raise ConfigError("the file must be in that directory")
        return file.read_text(encoding="utf-8").removesuffix("\n") if file.is_file() else None

    return find


def _normal(path: str | Path) -> Path:
    return Path(os.path.normpath(path))


def _check_allowed(path: Path, allowed: list[Path]) -> None:
    normal = _normal(path)
    if allowed and not any(normal.is_relative_to(one) for one in allowed):
        raise ConfigError(f"{path} is outside of allowed.paths")
