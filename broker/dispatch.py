"""The table of the handlers of all APIs, and the steps around each handler.

Every request passes these steps, in this order:

| step | module or function |
|---|---|
| its header is read; an unsupported API or version is refused | `Broker.on_frame` |
| its body is read without repeated names; a damaged body ends the connection | `Broker.on_frame` |
| a request with many names is divided into parts, which pass the next steps | `wide_requests.py` |
| with an authorizer: its parts that are not allowed are refused | `security/authorization.py` |
| with several brokers: a broker that is not its coordinator refuses it | `coordinator_edge.py` |
| its handler answers it | `Route.handle` |
| ...or parks it; a coordinator's Result answers it, now or later | `to_coordinators.py` |
| ...or ends the connection if the producer has left it | `to_transactions`: guard |
| ...or holds it back while the id's last transaction is ending | `to_transactions`: hold_back |
| ...for EndTxn: the three steps above | `TransactionEnds.on_end_txn` |
| with client quotas: its usage is recorded, its client throttled | `quotas/client_quotas.py` |
| its response is encoded and sent, later for a parked request | `Requests` |

A row of ROWS names the handler, and the parts that are its first arguments, in the order of its
signature. The class of the request follows from the API's name. A row is loaded with the first
request of its API, and this module with the first request of all, since loading all messages and
handlers would take a tenth of the broker's start. Only this module and assemble.py know all parts.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.broker.requests.imports import FOR_COORDINATORS, FOR_NEW_LOGS, import_all
from barnabas.broker.requests.refusals import message_class
from barnabas.broker.requests.to_coordinators import ToGroups, to_shares, to_transactions
from barnabas.broker.requests.wide_requests import SHAPES, reading_once
from barnabas.broker.routes import Handler, Read, Route

if TYPE_CHECKING:
    from barnabas.broker.parts import Parts
    from barnabas.protocol.api_table import Api


_OF_COORDINATORS = frozenset(
    {"groups", "group_runtime", "transactions", "endings", "transaction_ends", "deletion"}
)


class Row(NamedTuple):
    """One row of the table.

    make: a function from the parts to the handler. read: the module and name of the reader (a class
    with `read`, or a function), if the reader is not the `read` of the request's class. modules:
    the modules that a request of the API may be the first to import, besides those of its message
    and its reader.
    """

    make: Callable[[Parts], Handler[Any]]
    read: str = ""
    modules: tuple[str, ...] = ()


# --- the kinds of rows ---------------------------------------------------------------------------


def to(where: str, *parts: str, read: str = "", modules: tuple[str, ...] = ()) -> Row:
    """Make a row for a handler in `broker/handlers/`: a function, or a method of a class that is
    made from the parts. Takes: where, "module:function" or "module:Class.method".
    """
    module, _, name = where.partition(":")

    def make(all_parts: Parts) -> Handler[Any]:
        owner, _, method = name.partition(".")
        found = getattr(importlib.import_module(f"barnabas.broker.handlers.{module}"), owner)
        taken = [getattr(all_parts, part) for part in parts]
        handler: Handler[Any] = getattr(found(*taken), method) if method else partial(found, *taken)
        return handler

    of_parts = FOR_COORDINATORS if _OF_COORDINATORS.intersection(parts) else ()
    return Row(make, read, (f"broker.handlers.{module}", *of_parts, *modules))


def group(decide: str, modules: tuple[str, ...], kind: str = "any") -> Row:
    """Make a row for a method of the group coordinator. Takes: kind, the name of a method of
    `ToGroups`.
    """

    def make(parts: Parts) -> Handler[Any]:
        made = ToGroups(parts.groups, parts.group_runtime, parts.requests, parts.features)
        handler: Handler[Any] = getattr(made, kind)(getattr(parts.groups, decide))
        return handler

    return Row(make, modules=(*FOR_COORDINATORS, *modules))


def share_group(part: str, decide: str, kind: str = "of_share_groups") -> Row:
    """Make a row for a method of the group coordinator's part for share groups. Takes: kind, the
    name of a method of `ToGroups`.
    """

    def make(parts: Parts) -> Handler[Any]:
        made = ToGroups(parts.groups, parts.group_runtime, parts.requests, parts.features)
        handler: Handler[Any] = getattr(made, kind)(getattr(getattr(parts.groups, part), decide))
        return handler

    return Row(make, modules=_OF_SHARE_GROUPS)


def share_state(decide: str) -> Row:
    """Make a row for a method of the share coordinator."""

    def make(parts: Parts) -> Handler[Any]:
        shares = parts.shares.get()
        return to_shares(getattr(shares.coordinator, decide), shares.runtime, parts.requests)

    return Row(make, modules=_OF_SHARE_GROUPS)


def transaction(decide: str, hold_back: str = "", guard: tuple[str, ...] = ()) -> Row:
    """Make a row for a method of the transaction coordinator; `to_transactions` describes the
    parameters.
    """

    def make(parts: Parts) -> Handler[Any]:
        return to_transactions(
            attrgetter(decide)(parts.transactions),
            parts.endings,
            parts.transaction_ends,
            parts.transactions,
            parts.requests,
            hold_back,
            guard,
        )

    return Row(make, modules=_OF_TRANSACTIONS)


# --- the table -----------------------------------------------------------------------------------

_NEW_TOPICS = ("broker.topic_changes.new_topics", *FOR_NEW_LOGS)
_OF_MEMBERS = (
    *FOR_NEW_LOGS,
    "coordinator.groups.membership",
    "coordinator.groups.offsets.offset_removal",
)
_OF_CONSUMER_GROUPS = (
    *_OF_MEMBERS,
    "broker.handlers.groups",
    "broker.settings.group_configs",
    "coordinator.groups.classic.classic_members",  # needed for classic members in consumer groups
    "coordinator.groups.consumer.topic_patterns",
)
_OF_SHARE_GROUPS = (
    *FOR_COORDINATORS,
    *_OF_MEMBERS,
    "broker.handlers.share_fetch",
    "broker.settings.group_configs",
    "broker.share.shares",
    "coordinator.groups.share.share_groups",
    "coordinator.groups.share.share_offsets",
    "coordinator.groups.share.share_requests",
)
_OF_STREAMS_GROUPS = (
    *_OF_MEMBERS,
    "broker.settings.group_configs",
    "broker.topic_changes.streams_topics",
    "coordinator.groups.streams.streams_groups",
    "coordinator.groups.streams.streams_group_description",
    "coordinator.groups.streams.streams_requests",
)
_OF_DESCRIPTIONS = (
    "coordinator.groups.group_administration",
    "protocol.messages.consumer_group_describe",
)
_OF_COMMITS = (
    *FOR_NEW_LOGS,
    "coordinator.groups.offsets.offset_commits",
    "coordinator.groups.offsets.offset_removal",
)
_OF_TRANSACTIONS = (
    *FOR_COORDINATORS,
    *FOR_NEW_LOGS,
    "coordinator.transactions.partition_additions",
)
_OF_LISTS = (
    "coordinator.groups.consumer.topic_patterns",
    "coordinator.transactions.transaction_listing",
)
_PRODUCE = (
    "cluster", "topics", "requests", "quotas", "addresses", "disk_space", "flushes", "progress",
    "transactions", "endings", "transaction_ends", "files_ahead",
)  # fmt: skip
_FETCH = (
    "config", "metadata", "logs", "connections", "requests", "wide", "quotas", "access", "cluster",
    "addresses",
)  # fmt: skip
_SHARED = (
    "config", "metadata", "logs", "requests", "quotas", "access", "features", "cluster",
    "addresses", "group_configs", "shares",
)  # fmt: skip
_METADATA = (
    "config", "ids", "requests", "imports", "wide", "quotas", "access", "topics", "cluster",
    "addresses",
)  # fmt: skip
_TOPICS = (
    "config", "new_topics", "requests", "quotas", "access", "topics", "cluster", "deletion",
)  # fmt: skip
_CLUSTER = ("topics", "cluster", "addresses", "failover")
_CONFIGS = ("config", "topics", "cluster")
_TXN_OFFSETS = (
    "requests", "topics", "transactions", "endings", "transaction_ends", "groups", "group_runtime",
)  # fmt: skip
_STREAMS = ("requests", "groups", "group_runtime", "features", "access", "streams_topics")
_ADDED_PARTITIONS = (
    "v3_and_below_transactional_id", "v3_and_below_producer_id", "v3_and_below_producer_epoch",
)  # fmt: skip
_PRODUCER = ("transactional_id", "producer_id", "producer_epoch")

ROWS: dict[int, Row] = {
    0: to("produce:ProduceHandler.on_produce", *_PRODUCE, read="hot_requests:produce_reader",
          modules=(*_OF_TRANSACTIONS, "protocol.message_sets",
                   "storage.producers.producer_rows", "storage.producers.repetition")),
    1: to("fetch:FetchHandler.on_fetch", *_FETCH, read="hot_requests:read_fetch",
          modules=("broker.requests.older_fetch", "storage.index_builds")),
    2: to("list_offsets:ListOffsetsHandler.on_list_offsets",
          "config", "requests", "cluster", "logs", modules=("storage.index_builds",)),
    3: to("metadata:MetadataHandler.on_metadata", *_METADATA),
    8: group("on_offset_commit", _OF_COMMITS, "of_commits"),
    9: group("on_offset_fetch", ("coordinator.groups.offsets.offset_fetches",), "of_offsets"),
    10: to("coordinators:on_find_coordinator", "topics", "cluster", "addresses", "config",
           modules=FOR_NEW_LOGS),
    11: group("on_join_group", _OF_MEMBERS, "of_members"),
    12: group("on_heartbeat", _OF_MEMBERS),
    13: group("on_leave_group", _OF_MEMBERS, "of_members"),
    14: group("on_sync_group", _OF_MEMBERS, "of_members"),
    15: group("describe_groups", _OF_DESCRIPTIONS, "reading"),
    16: to("groups:on_list_groups", "requests", "groups", modules=_OF_DESCRIPTIONS),
    17: to("scram_credentials:on_sasl_handshake"),
    18: to("api_versions:on_api_versions", "connections", "config", "metadata", "features"),
    19: to("topics:TopicHandler.on_create_topics", *_TOPICS,
           modules=_NEW_TOPICS),
    20: to("topics:TopicHandler.on_delete_topics", *_TOPICS,
           modules=(*_NEW_TOPICS, "coordinator.groups.offsets.offset_removal")),
    21: to("delete_records:on_delete_records", "cluster", "logs", "progress"),
    22: to("init_producer_id:InitProducerIdHandler.on_init_producer_id",
           "requests", "topics", "transactions", "endings", "transaction_ends", "flushes",
           modules=(*FOR_NEW_LOGS, "coordinator.transactions.producer_sessions")),
    23: to("leader_epochs:on_offset_for_leader_epoch", "cluster"),
    24: transaction("additions.on_add_partitions_to_txn", hold_back=_ADDED_PARTITIONS[0],
                    guard=_ADDED_PARTITIONS),
    25: transaction("additions.on_add_offsets_to_txn", hold_back="transactional_id",
                    guard=_PRODUCER),
    26: Row(lambda parts: parts.transaction_ends.on_end_txn, modules=_OF_TRANSACTIONS),
    27: to("transactions:WriteTxnMarkersHandler.on_write_txn_markers",
           "requests", "cluster", "groups", "progress", "files_ahead",
           modules=(*FOR_NEW_LOGS, "storage.producers.producer_rows")),
    28: to("transactions:TxnOffsetCommitHandler.on_txn_offset_commit", *_TXN_OFFSETS,
           modules=_OF_COMMITS),
    29: to("acls:on_describe_acls", "access", "metadata"),
    30: to("acls:on_create_acls", "access", "metadata", "ids"),
    31: to("acls:on_delete_acls", "access", "metadata"),
    32: to("configs:ConfigHandler.on_describe_configs", *_CONFIGS),
    33: to("configs:ConfigHandler.on_alter_configs", *_CONFIGS),
    34: to("log_dirs:on_alter_replica_log_dirs", "topics"),
    35: to("log_dirs:on_describe_log_dirs", "requests", "topics", "cluster"),
    36: to("scram_credentials:on_sasl_authenticate"),
    37: to("topics:TopicHandler.on_create_partitions", *_TOPICS,
           modules=_NEW_TOPICS),
    38: to("delegation_tokens:on_create_delegation_token", "connections"),
    39: to("delegation_tokens:on_renew_delegation_token", "connections"),
    40: to("delegation_tokens:on_expire_delegation_token", "connections"),
    41: to("delegation_tokens:on_describe_delegation_token", "connections"),
    42: to("groups:on_delete_groups", "requests", "groups", "group_runtime", "shares",
           modules=_OF_DESCRIPTIONS),
    43: to("cluster:ClusterHandler.on_elect_leaders", *_CLUSTER),
    44: to("configs:ConfigHandler.on_incremental_alter_configs", *_CONFIGS),
    45: to("cluster:ClusterHandler.on_alter_partition_reassignments", *_CLUSTER),
    46: to("cluster:ClusterHandler.on_list_partition_reassignments", *_CLUSTER),
    47: group("on_offset_delete", ("coordinator.groups.offsets.offset_removal",), "writing"),
    48: to("client_quotas:on_describe_client_quotas", "metadata"),
    49: to("client_quotas:on_alter_client_quotas", "metadata", "quotas",
           modules=("broker.quotas.client_quotas", "broker.rim.connection_limits")),
    50: to("scram_credentials:on_describe_user_scram_credentials", "metadata"),
    51: to("scram_credentials:on_alter_user_scram_credentials", "metadata"),
    55: to("quorum:on_describe_quorum", "metadata", "logs", "cluster", "addresses"),
    57: to("update_features:on_update_features", "features"),
    60: to("cluster:ClusterHandler.on_describe_cluster", *_CLUSTER),
    61: to("transactions:on_describe_producers", "requests", "cluster"),
    64: to("voters:on_unregister_broker", "cluster"),
    65: to("transactions:on_describe_transactions",
           "requests", "transactions", "transaction_ends", "connections",
           read="client_hosts:DescribeTransactionsWithHostsRequest", modules=_OF_LISTS),
    66: to("transactions:on_list_transactions", "requests", "access", "cluster", "transactions",
           modules=_OF_LISTS),
    68: group("on_consumer_group_heartbeat", _OF_CONSUMER_GROUPS, "of_heartbeats"),
    69: group("describe_consumer_groups", _OF_DESCRIPTIONS, "reading_consumer_groups"),
    71: to("telemetry:on_get_telemetry_subscriptions", "ids", "telemetry", "connections"),
    72: to("telemetry:on_push_telemetry", "telemetry", "connections"),
    74: to("configs:ConfigHandler.on_list_config_resources", *_CONFIGS),
    75: to("cluster:ClusterHandler.on_describe_topic_partitions", *_CLUSTER),
    76: to("share_groups:on_share_group_heartbeat",
           "requests", "features", "groups", "group_runtime", modules=_OF_SHARE_GROUPS),
    77: share_group("share_requests", "describe_groups", "reading_share_groups"),
    78: to("share_fetch:ShareHandler.on_share_fetch", *_SHARED, modules=_OF_SHARE_GROUPS),
    79: to("share_fetch:ShareHandler.on_share_acknowledge", *_SHARED,
           modules=_OF_SHARE_GROUPS),
    80: to("voters:on_add_raft_voter", "logs"),
    81: to("voters:on_remove_raft_voter", "logs"),
    83: share_state("on_initialize"),
    84: share_state("on_read"),
    85: share_state("on_write"),
    86: share_state("on_delete"),
    87: share_state("on_read_summary"),
    88: to("streams_groups:StreamsGroupHandler.on_streams_group_heartbeat", *_STREAMS,
           modules=_OF_STREAMS_GROUPS),
    89: to("streams_groups:StreamsGroupHandler.on_streams_group_describe", *_STREAMS,
           modules=_OF_STREAMS_GROUPS),
    90: to("share_groups:on_describe_share_group_offsets",
           "requests", "features", "topics", "groups", "shares", modules=_OF_SHARE_GROUPS),
    91: share_group("share_offsets", "on_alter", "writing_share_groups"),
    92: share_group("share_offsets", "on_delete", "writing_share_groups"),
}  # fmt: skip
"""The rows by API key."""


# --- loading a row -------------------------------------------------------------------------------


def load_route(parts: Parts, api: Api) -> Route:
    """The route of an API, with the steps around its handler."""
    row = ROWS[api.key]
    route = Route(api.name, _reader(parts, api, row), row.make(parts))
    if api.name in SHAPES:
        route = route._replace(read=reading_once(api.name, route.read), is_wide=True)
    if not parts.cluster.is_one:
        route = parts.edge.get().around(api, route)
    if parts.access.authorizer is not None:
        from barnabas.broker.admission.authorization import authorized
        from barnabas.broker.admission.guard_steps import GuardParts

        of_guards = GuardParts(
            parts.access, parts.requests, parts.wide, parts.topics, parts.config.release
        )
        route = authorized(of_guards, api, route)
    if parts.quotas.clients is not None:
        route = parts.quotas.clients.around(api, route)
    if route.is_wide:
        route = parts.wide.get().around(api, route)
    return route


def import_modules(api: Api, *, is_one: bool) -> None:
    """Import all modules that requests of an API may need, before the first request. It may be
    called in another thread, since it uses no state of the broker. Takes: is_one, whether the
    process runs one broker.
    """
    row = ROWS[api.key]
    message_class(api, "Request")
    names = [*row.modules]
    if row.read:
        names.append(f"protocol.{row.read.partition(':')[0]}")
    if not is_one:
        names += ["broker.admission.coordinator_edge", *FOR_COORDINATORS]
    import_all(names)


def _reader(parts: Parts, api: Api, row: Row) -> Read[Any]:
    """The function that reads requests of an API: the reader of the message class, or the reader
    that the row names.
    """
    if not row.read:
        return message_class(api, "Request").read
    module, _, name = row.read.partition(":")
    found = getattr(importlib.import_module(f"barnabas.protocol.{module}"), name)
    if name.endswith("_reader"):
        found = found(parts.config.barnabas_request_max_bytes)
    read: Read[Any] = getattr(found, "read", found)
    return read
