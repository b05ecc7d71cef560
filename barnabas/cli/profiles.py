"""Profiles: named addresses and settings of clusters, in a file of the user; and settings in the
environment.

    $XDG_CONFIG_HOME/barnabas/profiles.toml, else ~/.config/barnabas/profiles.toml, mode 0600

    current = "staging"

    [profiles.staging]
    bootstrap_server = "kafka-1:9092,kafka-2:9092"
    timeout = 30.0

    [profiles.staging.settings]
    "security.protocol" = "SASL_SSL"

A setting is taken from the first of these sources that has it:

    option                    -b, --timeout; the file of --client-config
    environment               BARNABAS_BOOTSTRAP_SERVER, BARNABAS_TIMEOUT; a variable for each
                              setting: BARNABAS_SASL_PASSWORD is sasl.password
    file of the environment   BARNABAS_CLIENT_CONFIG
    profile                   --profile, else BARNABAS_PROFILE, else the current one
    default                   127.0.0.1:9092, 15 s, no settings

If --client-config or BARNABAS_CLIENT_CONFIG names a file, the profile's settings are ignored. The
two are not merged.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from barnabas.cli.errors import CommandError, missing

if TYPE_CHECKING:
    from pathlib import Path

FILE_MODE, DIRECTORY_MODE = 0o600, 0o700
PREFIX = "BARNABAS_"
NO_PROFILE = ""  # the value of --profile for no profile, not even the current one
SECRETS = ("sasl.jaas.config",)
_OF_SECRETS = ("password", "secret", "token", "user.info", "keystore.key")


class Profile(NamedTuple):
    """The address and settings of a cluster. bootstrap_server, timeout_s: None if the profile does
    not set them.
    """

    bootstrap_server: str | None = None
    timeout_s: float | None = None
    settings: Mapping[str, str] = {}


class Profiles(NamedTuple):
    """All profiles, by name. current: the name of the current profile, or None."""

    current: str | None
    by_name: Mapping[str, Profile]

    def find(self, name: str) -> Profile:
        """The profile with this name. Raises: CommandError."""
        if name not in self.by_name:
            text = missing("profile", name, self.by_name, "barnabas profile list")
            raise CommandError(f"{profiles_file()}: {text}")
        return self.by_name[name]


def profiles_file() -> Path:
    """The path of the file with the profiles."""
    from pathlib import Path

    return Path(_file_name())


def _file_name() -> str:
    """The path of the file as text: most commands only look whether it exists."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    directory = base if base.startswith("/") else os.path.expanduser("~/.config")
    return os.path.join(directory, "barnabas", "profiles.toml")


def read_profiles() -> Profiles:
    """All profiles; none if the file does not exist. Raises: CommandError for a malformed file."""
    path = profiles_file()
    try:
        data = path.read_text("utf-8")
    except FileNotFoundError:
        return Profiles(None, {})
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"cannot read {path}: {error}") from error
    import tomllib

    try:
        return _parse(tomllib.loads(data))
    except (ValueError, TypeError, AttributeError) as error:
        raise CommandError(f"{path} is not a file of profiles: {error}") from error


def _parse(data: Mapping[str, object]) -> Profiles:
    """The profiles in a TOML document. Raises: ValueError."""
    unknown = sorted(set(data) - {"current", "profiles"})
    if unknown:
        raise ValueError(f"{unknown[0]} is unknown: use current and profiles")
    current = data.get("current")
    if current is not None and not isinstance(current, str):
        raise ValueError("current must be the name of a profile")
    tables = data.get("profiles", {})
    if not isinstance(tables, dict):
        raise ValueError("profiles must be tables")
    return Profiles(current, {name: _profile(name, table) for name, table in tables.items()})


def _profile(name: str, table: Mapping[str, object]) -> Profile:
    """The profile in a TOML table. Raises: ValueError."""
    unknown = sorted(set(table) - {"bootstrap_server", "timeout", "settings"})
    if unknown:
        raise ValueError(
            f"{name}.{unknown[0]} is unknown: use bootstrap_server, timeout and settings"
        )
    server, timeout = table.get("bootstrap_server"), table.get("timeout")
    if server is not None and not isinstance(server, str):
        raise ValueError(f"{name}.bootstrap_server must be a text")
    if timeout is not None and (
        isinstance(timeout, bool) or not isinstance(timeout, int | float) or timeout <= 0
    ):
        raise ValueError(f"{name}.timeout must be a number of seconds")
    settings = table.get("settings", {})
    if not isinstance(settings, dict) or not all(
        isinstance(value, str) for value in settings.values()
    ):
        raise ValueError(f"{name}.settings must be texts")
    return Profile(server, None if timeout is None else float(timeout), settings)


def write_profiles(profiles: Profiles) -> None:
    """Write the file atomically, readable only by its user. Raises: CommandError."""
    path = profiles_file()
    new = path.with_name(f"{path.name}.new")
    try:
        path.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        new.unlink(missing_ok=True)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(_text(profiles))
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error}") from error


def _text(profiles: Profiles) -> str:
    """The profiles as a TOML document."""
    lines = []
    if profiles.current is not None:
        lines += [f"current = {_quoted(profiles.current)}"]
    for name, profile in sorted(profiles.by_name.items()):
        lines += ["", f"[profiles.{_quoted(name)}]"]
        if profile.bootstrap_server is not None:
            lines += [f"bootstrap_server = {_quoted(profile.bootstrap_server)}"]
        if profile.timeout_s is not None:
            lines += [f"timeout = {float(profile.timeout_s)}"]
        lines += [f"[profiles.{_quoted(name)}.settings]"] if profile.settings else []
        lines += [f"{_quoted(key)} = {_quoted(text)}" for key, text in profile.settings.items()]
    return "\n".join(lines).lstrip("\n") + "\n"


def _quoted(text: str) -> str:
    """The text as a basic string of TOML."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(_escaped(letter) for letter in escaped) + '"'


def _escaped(letter: str) -> str:
    is_plain = letter >= " " and letter != "\x7f"
    return letter if is_plain else f"\\u{ord(letter):04x}"


def exposure() -> str:
    """A text that describes wrong permissions of the profiles' file; empty if they are right."""
    path = profiles_file()
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return ""
    if not mode & 0o077:
        return ""
    return f"others may read {path} (mode {mode:04o}): `chmod 600 {path}`"


# --- the settings of a command ------------------------------------------------------------------


def chosen_profile(name: str | None) -> Profile:
    """The profile that a command uses.

    Takes:  name, the value of --profile or BARNABAS_PROFILE; None for the current profile.
    Raises: CommandError if the profile does not exist.
    """
    if name == NO_PROFILE:
        return Profile()
    if name is None and not os.path.exists(_file_name()):
        return Profile()
    profiles = read_profiles()
    name = profiles.current if name is None else name
    return Profile() if name is None else profiles.find(name)


def settings_of_environment(names: Mapping[str, object] | frozenset[str]) -> dict[str, str]:
    """The settings from environment variables. Takes: names, the names of all possible settings."""
    found = {}
    for name in names:
        value = os.environ.get(variable_of(name))
        if value is not None:
            found[name] = value
    return found


def variable_of(setting: str) -> str:
    """The environment variable of a setting: BARNABAS_SASL_PASSWORD for sasl.password."""
    return PREFIX + setting.upper().replace(".", "_")


def is_secret(setting: str) -> bool:
    """Whether a setting's value is a secret."""
    return setting in SECRETS or any(part in setting for part in _OF_SECRETS)
