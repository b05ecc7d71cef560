"""`barnabas profile`: add, use, list, show, remove."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TextIO

import click

from barnabas.cli.cluster import SETTING_NAMES, Connection, client_settings, read_properties
from barnabas.cli.completing import complete_profile
from barnabas.cli.errors import CommandError
from barnabas.cli.options import SETTING, confirm, ending, json_option
from barnabas.cli.options import yes_option as with_yes
from barnabas.cli.output import Column, Output, note
from barnabas.cli.profiles import (
    Profile,
    exposure,
    is_secret,
    profiles_file,
    read_profiles,
    variable_of,
    write_profiles,
)

HIDDEN = "(hidden)"


@click.group()
def profile() -> None:
    """Profiles, which give a name to a cluster's address and settings: add, use, list, show,
    remove.

    A profile has an address, a timeout and a client's settings. Profiles are stored in
    ~/.config/barnabas/profiles.toml (or under XDG_CONFIG_HOME), which only its user can read.
    Commands use the profile of --profile, else of BARNABAS_PROFILE, else that of `profile use`.
    Options and environment variables override a profile.
    """


@profile.command(
    "add",
    epilog=ending(
        "barnabas profile add local -b 127.0.0.1:9092 --use",
        "barnabas profile add staging -b kafka-1:9093 --client-config staging.properties",
        "barnabas profile add prod -b kafka:9093 -c security.protocol=SASL_SSL"
        " -c sasl.mechanism=SCRAM-SHA-512 -c sasl.username=me --password-file -",
    ),
)
@click.argument("name")
@click.option("-b", "--bootstrap-server", metavar="ADDRESS", help="The cluster's address.")
@click.option(
    "--client-config",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="A properties file, whose settings are copied into the profile.",
)
@click.option(
    "-c", "--config", "configs", type=SETTING, multiple=True, help="A setting of the client."
)
@click.option(
    "--password-file",
    metavar="FILE",
    type=click.File(encoding="utf-8"),
    help="A file whose first line is sasl.password; -: standard input.",
)
@click.option(
    "--timeout",
    "timeout_s",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    help="How long commands with this profile wait for an answer.",
)
@click.option("--use", "is_current", is_flag=True, help="Make this profile the current one.")
@with_yes
@json_option
def add(
    output: Output,
    name: str,
    bootstrap_server: str | None,
    client_config: str | None,
    configs: Sequence[tuple[str, str]],
    password_file: TextIO | None,
    timeout_s: float | None,
    is_current: bool,
    yes: bool,
) -> None:
    """Add a profile, or replace one.

    The first profile becomes the current one.
    """
    settings = {} if client_config is None else read_properties(client_config)
    settings.update(configs)
    if password_file is not None:
        settings["sasl.password"] = password_file.readline().rstrip("\r\n")
    server = settings.pop("bootstrap.servers", None)
    made = Profile(bootstrap_server or server, timeout_s, settings)
    if made == Profile():
        raise click.UsageError("the profile is empty: give --bootstrap-server, or settings")
    client_settings(settings)  # raises for an unknown setting
    if made.bootstrap_server is not None:
        Connection(made.bootstrap_server, None, 1.0).addresses()  # raises for a malformed address
    profiles = read_profiles()
    if name in profiles.by_name and made != profiles.by_name[name]:
        confirm(f"Replace the profile {name}?", yes=yes)
    current = name if is_current or not profiles.by_name else profiles.current
    write_profiles(profiles._replace(current=current, by_name={**profiles.by_name, name: made}))
    if output.as_json:
        output.data({"profile": name, "current": current == name})
        return
    which = ", the current one" if current == name else ""
    output.line(f"{name}: in {profiles_file()}{which}")


@profile.command(
    "use", epilog=ending("barnabas profile use staging", "barnabas profile use --none")
)
@click.argument("name", required=False, shell_complete=complete_profile)
@click.option("--none", "is_none", is_flag=True, help="Unset the current profile.")
@json_option
def use(output: Output, name: str | None, is_none: bool) -> None:
    """Make a profile the current one: commands without --profile use it."""
    if (name is None) == (not is_none):
        raise click.UsageError("give the name of a profile, or --none")
    profiles = read_profiles()
    if name is not None:
        profiles.find(name)
    write_profiles(profiles._replace(current=name))
    if os.environ.get("BARNABAS_PROFILE"):
        note("BARNABAS_PROFILE is set, and overrides the current profile", "warning")
    if output.as_json:
        output.data({"current": name})
    else:
        output.line("no profile is current" if name is None else f"{name} is current")


@profile.command("list", epilog=ending("barnabas profile list", "barnabas profile list --json"))
@json_option
def list_profiles(output: Output) -> None:
    """List profiles."""
    profiles = read_profiles()
    rows = [
        {
            "profile": name,
            "current": name == profiles.current,
            "bootstrap_server": row.bootstrap_server,
            "security_protocol": row.settings.get("security.protocol", "PLAINTEXT"),
            "user": row.settings.get("sasl.username"),
        }
        for name, row in sorted(profiles.by_name.items())
    ]
    if warning := exposure():
        note(warning, "warning")
    if output.as_json:
        output.data(rows)
        return
    columns = [
        Column("profile", "PROFILE", "name"),
        Column("current", "CURRENT"),
        Column("bootstrap_server", "ADDRESS"),
        Column("security_protocol", "SECURITY"),
        Column("user", "USER"),
    ]
    output.table(rows, columns, "no profiles; `barnabas profile add NAME -b ADDRESS` adds one")


@profile.command(
    "show", epilog=ending("barnabas profile show", "barnabas profile show staging --json")
)
@click.argument("name", required=False, shell_complete=complete_profile)
@click.option("--secrets", "with_secrets", is_flag=True, help="Show passwords, too.")
@json_option
def show(output: Output, name: str | None, with_secrets: bool) -> None:
    """Show a profile, by default the current one, and the environment variables that override
    it.
    """
    profiles = read_profiles()
    name = os.environ.get("BARNABAS_PROFILE") or profiles.current if name is None else name
    if name is None:
        raise CommandError("no profile is current: name one, or choose one with `profile use`")
    found = profiles.find(name)
    settings = {
        key: HIDDEN if is_secret(key) and not with_secrets else text
        for key, text in sorted(found.settings.items())
    }
    names = ["BOOTSTRAP_SERVER", "CLIENT_CONFIG", "TIMEOUT", "PROFILE"]
    variables = [f"BARNABAS_{one}" for one in names] + [
        variable_of(setting) for setting in sorted(SETTING_NAMES)
    ]
    in_environment = [one for one in variables if one in os.environ]
    if warning := exposure():
        note(warning, "warning")
    if output.as_json:
        output.data(
            {
                "profile": name,
                "current": name == profiles.current,
                "bootstrap_server": found.bootstrap_server,
                "timeout": found.timeout_s,
                "settings": settings,
                "environment": in_environment,
            }
        )
        return
    output.heading(name)
    pairs = [("address", found.bootstrap_server), ("timeout", found.timeout_s)]
    output.fields([*pairs, *settings.items(), ("environment", in_environment)])


@profile.command("remove", epilog=ending("barnabas profile remove staging --yes"))
@click.argument(
    "names", metavar="NAME...", nargs=-1, required=True, shell_complete=complete_profile
)
@with_yes
@json_option
def remove(output: Output, names: Sequence[str], yes: bool) -> None:
    """Remove profiles, with the passwords in them."""
    profiles = read_profiles()
    for name in names:
        profiles.find(name)
    confirm(f"Remove {', '.join(names)}?", yes=yes)
    left = {name: row for name, row in profiles.by_name.items() if name not in names}
    current = profiles.current if profiles.current in left else None
    write_profiles(profiles._replace(current=current, by_name=left))
    if output.as_json:
        output.data({"removed": list(names), "current": current})
        return
    for name in names:
        output.line(f"{name}: removed")
