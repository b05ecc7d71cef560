"""`barnabas quota`: list, set, remove quotas of clients (KIP-546)."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import click

from barnabas.cli.cluster import Connection
from barnabas.cli.denied import denied_by
from barnabas.cli.errors import OK, CommandError, RefusedError
from barnabas.cli.options import (
    SETTING,
    Command,
    confirm,
    connection_options,
    dry_run_option,
    ending,
    json_option,
    yes_option,
)
from barnabas.cli.output import Column, Output
from barnabas.client.request_kind import RequestKind

TYPES = ("user", "client-id", "ip")
EXACT, DEFAULT = 0, 1
DEFAULT_SHOWN = "(default)"


class Entity(NamedTuple):
    """The entity of a quota. names: the name for each entity type, or None for the type's default
    entity.
    """

    names: Mapping[str, str | None]

    def __str__(self) -> str:
        return ", ".join(
            f"{kind} {DEFAULT_SHOWN if name is None else name}" for kind, name in self.names.items()
        )


def entity_options(command: Command) -> Command:
    """Add `--user`, `--client-id`, `--ip` and `--...-defaults` to a command. The command gets an
    Entity.
    """

    @functools.wraps(command)
    def with_entity(*args: Any, **kwargs: Any) -> Any:
        names: dict[str, str | None] = {}
        for kind in TYPES:
            key = kind.replace("-", "_")
            name, is_default = kwargs.pop(key), kwargs.pop(f"{key}_defaults")
            if name is not None and is_default:
                raise click.UsageError(f"--{kind} and --{kind}-defaults: give one of them.")
            if name is not None or is_default:
                names[kind] = name
        if "ip" in names and len(names) > 1:
            raise click.UsageError("An ip cannot be combined: give it alone.")
        return command(*args, entity=Entity(names), **kwargs)

    wrapped: Any = with_entity
    for kind, metavar, what in reversed(
        (("user", "NAME", "user"), ("client-id", "ID", "client id"), ("ip", "ADDRESS", "address"))
    ):
        wrapped = click.option(
            f"--{kind}-defaults",
            is_flag=True,
            help=f"The default of each {what} without its own quota.",
        )(wrapped)
        wrapped = click.option(f"--{kind}", metavar=metavar, help=f"The {what} of the quota.")(
            wrapped
        )
    return wrapped  # type: ignore[no-any-return] # click's decorators keep no types


@click.group()
def quota() -> None:
    """Quotas of users, client ids and addresses: list, set, remove.

    These commands work with any Kafka broker. Keys: producer_byte_rate and consumer_byte_rate
    (bytes a second), request_percentage (of the broker's time), controller_mutation_rate
    (partitions created or deleted a second); for addresses, connection_creation_rate (connections a
    second).
    """


@quota.command(
    "list", epilog=ending("barnabas quota list", "barnabas quota list --user alice --json")
)
@entity_options
@connection_options
@json_option
def list_quotas(connection: Connection, output: Output, entity: Entity) -> int:
    """List quotas: all, or those of a user, a client id or an address."""
    rows = [
        {
            **{kind.replace("-", "_"): _shown(names, kind) for kind in TYPES},
            "key": key,
            "value": value,
        }
        for names, quotas in _described(connection, entity)
        for key, value in sorted(quotas.items())
    ]
    rows.sort(key=lambda row: [(name is None, name or "") for name in list(row.values())[:4]])
    if output.as_json:
        output.data(rows)
        return OK
    columns = [
        Column("user", "USER", "name"),
        Column("client_id", "CLIENT ID", "name"),
        Column("ip", "IP", "name"),
        Column("key", "KEY"),
        Column("value", "VALUE"),
    ]
    output.table([{**row, "value": f"{row['value']:.15g}"} for row in rows], columns, "no quotas")
    return OK


@quota.command(
    "set",
    epilog=ending(
        "barnabas quota set --user alice producer_byte_rate=1048576",
        "barnabas quota set --user-defaults --client-id app request_percentage=20",
        "barnabas quota set --ip-defaults connection_creation_rate=10",
    ),
)
@click.argument("values", metavar="KEY=VALUE...", nargs=-1, required=True, type=SETTING)
@entity_options
@dry_run_option
@connection_options
@json_option
def set_quotas(
    connection: Connection,
    output: Output,
    entity: Entity,
    values: Sequence[tuple[str, str]],
    dry_run: bool,
) -> int:
    """Set quotas. Quotas that are not named keep their values."""
    changes: dict[str, float | None] = {}
    for key, text in values:
        try:
            changes[key] = float(text)
        except ValueError as error:
            raise click.UsageError(f"{key}={text}: it must be a number.") from error
    _alter(connection, entity, changes, dry_run=dry_run)
    return _print_change(output, entity, dict(values), dry_run=dry_run)


@quota.command(
    "remove",
    epilog=ending(
        "barnabas quota remove --user alice producer_byte_rate",
        "barnabas quota remove --user alice --yes",
    ),
)
@click.argument("keys", metavar="[KEY]...", nargs=-1)
@entity_options
@dry_run_option
@yes_option
@connection_options
@json_option
def remove(
    connection: Connection,
    output: Output,
    entity: Entity,
    keys: Sequence[str],
    dry_run: bool,
    yes: bool,
) -> int:
    """Remove the named quotas; without names, every quota set for exactly this entity."""
    if not keys:
        keys = [
            key
            for names, quotas in _described(connection, entity)
            if names == entity.names
            for key in quotas
        ]
        if not keys:
            raise CommandError(f"{entity}: it has no quotas to remove")
    if not dry_run:
        confirm(f"Remove {', '.join(keys)} of {entity}?", yes=yes)
    _alter(connection, entity, dict.fromkeys(keys), dry_run=dry_run)
    return _print_change(output, entity, dict.fromkeys(keys), dry_run=dry_run)


def _shown(names: Mapping[str, str | None], kind: str) -> str | None:
    """The printed form of an entity's name for one entity type; None if the entity has no such
    type.
    """
    name = names.get(kind)
    return DEFAULT_SHOWN if kind in names and name is None else name


def _described(
    connection: Connection, entity: Entity
) -> list[tuple[dict[str, str | None], dict[str, float]]]:
    """The names and the quotas of each entity that has all names of `entity`."""
    from barnabas.protocol.messages.describe_client_quotas import (
        ComponentData,
        DescribeClientQuotasRequest,
        DescribeClientQuotasResponse,
    )

    components = [
        ComponentData(entity_type=kind, match_type=DEFAULT if name is None else EXACT, match=name)
        for kind, name in entity.names.items()
    ]
    with connection.admin() as admin:
        kind = RequestKind(DescribeClientQuotasRequest, DescribeClientQuotasResponse, 0, 1)
        answer = admin.any(kind, DescribeClientQuotasRequest(components, strict=False))
    if answer.error_code:
        raise CommandError(_why(answer))
    return [
        (
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in answer.entries or ()
    ]


def _alter(
    connection: Connection,
    entity: Entity,
    changes: Mapping[str, float | None],
    *,
    dry_run: bool,
) -> None:
    """Set some of an entity's quotas, and remove those whose value is None.

    Raises: CommandError with the reason that the broker gives.
    """
    from barnabas.protocol.messages.alter_client_quotas import (
        AlterClientQuotasRequest,
        AlterClientQuotasResponse,
        EntityData,
        EntryData,
        OpData,
    )

    if not entity.names:
        raise click.UsageError("Give --user, --client-id or --ip, or their defaults.")
    entry = EntryData(
        entity=[
            EntityData(entity_type=kind, entity_name=name) for kind, name in entity.names.items()
        ],
        ops=[
            OpData(key=key, value=value or 0.0, remove=value is None)
            for key, value in changes.items()
        ],
    )
    with connection.admin() as admin:
        kind = RequestKind(AlterClientQuotasRequest, AlterClientQuotasResponse, 0, 1)
        answer = admin.any(kind, AlterClientQuotasRequest([entry], dry_run))
    (result,) = answer.entries
    if result.error_code:
        raise CommandError(f"{entity}: {_why(result)}")


def _why(answer: Any) -> str:
    error = RefusedError(answer.error_code, answer.error_message)
    return denied_by(error) or str(error) or error.name


def _print_change(
    output: Output, entity: Entity, values: Mapping[str, str | None], *, dry_run: bool
) -> int:
    """Print what was set or removed. Gives: the exit code."""
    if output.as_json:
        output.data({"entity": dict(entity.names), "values": dict(values), "dry_run": dry_run})
        return OK
    would = "would be " if dry_run else ""
    for key, text in values.items():
        output.line(f"{entity}: {key} {would}{'removed' if text is None else f'set to {text}'}")
    return OK
