"""Share groups and streams groups of a stopped directory, and which releases of Kafka know them.

Apache Kafka 3.9 and 4.0 have a preview of share groups. Its records have the same keys but other
values, so a directory with share groups cannot be handed over to these releases. They do not know
the records of streams groups either: these records are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.broker.settings.features import SHARE_VERSION, STREAMS_VERSION
from barnabas.coordinator.groups.group_state import GroupKind
from barnabas.coordinator.groups.group_types import SHARE_TYPE, STREAMS_TYPE, type_of_version
from barnabas.coordinator.groups.share.share_group import ShareKind
from barnabas.coordinator.groups.streams.streams_group import StreamsKind
from barnabas.graduation.kafka_versions import KafkaVersion
from barnabas.protocol.records import Record

_KINDS: dict[str, GroupKind] = {SHARE_TYPE: ShareKind(), STREAMS_TYPE: StreamsKind()}
_FEATURES = {SHARE_TYPE: SHARE_VERSION, STREAMS_TYPE: STREAMS_VERSION}
_SHOWN = 10


def replay_group(types: dict[str, str], record: Record) -> None:
    """Add a group to `types`, or remove it, according to a record of the internal topic. Takes:
    types, the type of each group by its name.
    """
    key = b"" if record.key is None else bytes(record.key)
    kind = type_of_version(int.from_bytes(key[:2], "big"))
    if kind not in _KINDS:
        return
    decoded = _KINDS[kind].decode_key(key)
    if decoded is None or not _KINDS[kind].is_group_key(decoded):
        return
    if record.value is not None:
        types[decoded.group_id] = kind
    elif types.get(decoded.group_id) == kind:
        del types[decoded.group_id]


def refused_share_groups(types: Mapping[str, str], kafka: KafkaVersion) -> str | None:
    """Why a release cannot take the share groups over; None if it can."""
    names = _unknown(types, kafka, SHARE_TYPE)
    if not names:
        return None
    return (
        f"Kafka {kafka.name} has share groups in another format, and cannot read these: "
        f"{_shown(names)}. Hand the directory over to Kafka 4.3; or start the broker, delete the "
        "groups with `barnabas groups delete`, and stop it"
    )


def note_of_streams_groups(types: Mapping[str, str], kafka: KafkaVersion) -> str | None:
    """A note on the streams groups for a release that does not know them; None if there is nothing
    to say.
    """
    names = _unknown(types, kafka, STREAMS_TYPE)
    if not names:
        return None
    return (
        f"Kafka {kafka.name} does not support the streams groups {_shown(names)}: their "
        "committed offsets stay, and their applications have to start with "
        "group.protocol=classic there"
    )


def _unknown(types: Mapping[str, str], kafka: KafkaVersion, kind: str) -> list[str]:
    """The names of the groups of a type that the release does not know, sorted."""
    if _FEATURES[kind] in kafka.features:
        return []
    return sorted(name for name, of_group in types.items() if of_group == kind)


def _shown(names: Iterable[str]) -> str:
    """The first names of a list, and the number of the others."""
    shown = list(names)
    more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    return f"{', '.join(shown[:_SHOWN])}{more}"
