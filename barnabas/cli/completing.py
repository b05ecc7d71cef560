"""Names that a shell completes: profiles; topics, groups, transactional ids and users, which are
requested from the cluster.

The cluster is the one that the command would use, according to the options before the word, the
environment and the profile. If the cluster refuses the request, or does not respond within a
second, no names are completed.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterable

import click

from barnabas.cli.client.cluster_client import ClusterClient
from barnabas.cli.profiles import read_profiles

PATIENCE_S = 1.0
MOST_NAMES = 1000


def complete_profile(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The names of profiles that begin with the incomplete word."""
    try:
        return _beginning(read_profiles().by_name, incomplete)
    except Exception:
        return []


def complete_topic(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The names of topics that begin with the incomplete word; internal topics only if the word is
    not empty.
    """

    def names(admin: ClusterClient) -> Iterable[str]:
        from barnabas.cli.client.topics import describe_topics, name_of

        return (name_of(row) for row in describe_topics(admin) if incomplete or not row.is_internal)

    return _asked(ctx, incomplete, names)


def complete_group(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The names of groups that begin with the incomplete word."""

    def names(admin: ClusterClient) -> Iterable[str]:
        from barnabas.cli.client.groups import list_groups

        return (row.group for row in list_groups(admin))

    return _asked(ctx, incomplete, names)


def complete_transactional_id(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[str]:
    """The transactional ids that begin with the incomplete word."""

    def names(admin: ClusterClient) -> Iterable[str]:
        from barnabas.cli.client.transactions import list_transactions

        return (row.transactional_id for row in list_transactions(admin))

    return _asked(ctx, incomplete, names)


def _asked(
    ctx: click.Context, incomplete: str, names: Callable[[ClusterClient], Iterable[str]]
) -> list[str]:
    """The names that the cluster returns; empty if the request fails."""
    from barnabas.cli.options import DEFAULT_ADDRESS, make_connection

    try:
        with ctx.scope(cleanup=False), contextlib.redirect_stderr(io.StringIO()):
            connection = make_connection(
                str(ctx.params.get("bootstrap_server") or DEFAULT_ADDRESS),
                ctx.params.get("client_config"),
                ctx.params.get("profile"),
                PATIENCE_S,
            )
            connection.timeout_s = PATIENCE_S
            with connection.admin() as admin:
                return _beginning(names(admin), incomplete)
    except Exception:  # an error would only corrupt the line in the shell
        return []


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    """The names that begin with the incomplete word. A name with control characters is left out:
    the shell would write it to the terminal.
    """
    found = (name for name in names if name.startswith(incomplete) and name.isprintable())
    return sorted(found)[:MOST_NAMES]
