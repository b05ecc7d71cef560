"""`barnabas config`: settings of topics, brokers, groups and client metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from barnabas.cli.client import configs
from barnabas.cli.client.cluster_client import ClusterClient
from barnabas.cli.cluster import Connection
from barnabas.cli.denied import denied_by
from barnabas.cli.errors import CommandError, RefusedError
from barnabas.cli.options import (
    SETTING,
    connection_options,
    dry_run_option,
    ending,
    json_option,
)
from barnabas.cli.output import Column, Output

KINDS = ("topic", "broker", "group", "client-metrics")
_SOURCES = {
    "DYNAMIC_TOPIC_CONFIG": "topic",
    "DYNAMIC_BROKER_CONFIG": "broker, at runtime",
    "DYNAMIC_DEFAULT_BROKER_CONFIG": "cluster, at runtime",
    "STATIC_BROKER_CONFIG": "broker, at its start",
    "DEFAULT_CONFIG": "default",
    "DYNAMIC_GROUP_CONFIG": "group",
    "DYNAMIC_CLIENT_METRICS_CONFIG": "client metrics",
}


def alter_configs(
    admin: ClusterClient,
    kind: str,
    name: str,
    values: Mapping[str, str],
    unset: Sequence[str],
    *,
    dry_run: bool = False,
) -> None:
    """Set some of a resource's settings, and reset others to their defaults.

    Raises: CommandError with the reason that the broker gives.
    """
    try:
        configs.alter_configs(admin, kind, name, values, unset, dry_run=dry_run)
    except RefusedError as error:
        text = denied_by(error, name) or f"{kind} {name}: {str(error) or error.name}"
        raise CommandError(text) from error


@click.group()
def config() -> None:
    """Settings of topics, brokers, groups and client metrics: describe, set and unset.

    A RESOURCE is topic, broker, group or client-metrics; `barnabas settings` lists the settings of
    a Barnabas broker.
    """


@config.command(
    "describe",
    epilog=ending(
        "barnabas config describe topic orders",
        "barnabas config describe broker 1 --all --filter retention",
    ),
)
@click.argument("kind", metavar="RESOURCE", type=click.Choice(KINDS))
@click.argument("name")
@click.option("--all", "everything", is_flag=True, help="Show defaults, too.")
@click.option("--filter", "text", default="", help="Only settings whose names contain this.")
@connection_options
@json_option
def describe(
    connection: Connection, output: Output, kind: str, name: str, everything: bool, text: str
) -> None:
    """Show the settings of one resource.

    Only settings that differ from their defaults are shown, unless --all is given.
    """
    with connection.admin() as admin:
        if kind == "topic":
            from barnabas.cli.offsets import describe_topics

            describe_topics(admin, [name])
        found = configs.describe_configs(admin, kind, [name])
    rows = [
        {
            "name": setting.name,
            "value": setting.value,
            "source": setting.source,
            "read_only": setting.is_read_only,
            "sensitive": setting.is_sensitive,
        }
        for setting in sorted(found.get(name, ()))
        if text in setting.name and (everything or text or setting.is_altered)
    ]
    if output.as_json:
        output.data(rows)
        return
    for row in rows:
        row["source"] = _SOURCES.get(str(row["source"]), row["source"])
        row["value"] = "(hidden)" if row["sensitive"] else row["value"]
    output.table(
        rows,
        [
            Column("name", "SETTING", "name"),
            Column("value", "VALUE"),
            Column("source", "SET BY"),
            Column("read_only", "READ ONLY"),
        ],
        f"{kind} {name}: only defaults; --all shows them",
    )


@config.command(
    "set",
    epilog=ending(
        "barnabas config set topic orders retention.ms=86400000 cleanup.policy=compact",
        "barnabas config set topic orders max.message.bytes=5000000 --dry-run",
    ),
)
@click.argument("kind", metavar="RESOURCE", type=click.Choice(KINDS))
@click.argument("name")
@click.argument("values", metavar="KEY=VALUE...", type=SETTING, nargs=-1, required=True)
@dry_run_option
@connection_options
@json_option
def set_values(
    connection: Connection,
    output: Output,
    kind: str,
    name: str,
    values: Sequence[tuple[str, str]],
    dry_run: bool,
) -> None:
    """Set settings of one resource."""
    with connection.admin() as admin:
        alter_configs(admin, kind, name, dict(values), (), dry_run=dry_run)
    _show_change(output, kind, name, dict(values), [], dry_run)


@config.command("unset", epilog=ending("barnabas config unset topic orders retention.ms"))
@click.argument("kind", metavar="RESOURCE", type=click.Choice(KINDS))
@click.argument("name")
@click.argument("keys", metavar="KEY...", nargs=-1, required=True)
@dry_run_option
@connection_options
@json_option
def unset_values(
    connection: Connection,
    output: Output,
    kind: str,
    name: str,
    keys: Sequence[str],
    dry_run: bool,
) -> None:
    """Reset settings to their defaults."""
    with connection.admin() as admin:
        alter_configs(admin, kind, name, {}, keys, dry_run=dry_run)
    _show_change(output, kind, name, {}, list(keys), dry_run)


def _show_change(
    output: Output, kind: str, name: str, values: dict[str, str], unset: list[str], dry_run: bool
) -> None:
    """Print what the command has set and unset, or what it would have done if `dry_run`."""
    if output.as_json:
        output.data(
            {"resource": kind, "name": name, "set": values, "unset": unset, "dry_run": dry_run}
        )
        return
    parts = [f"{key}={value}" for key, value in values.items()] + [f"{key} unset" for key in unset]
    output.line(f"{kind} {name}: {'would have ' if dry_run else ''}{', '.join(parts)}")
