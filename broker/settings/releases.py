"""The releases of Apache Kafka that this broker can emulate (`barnabas.emulate`).

One table says how releases differ: in the versions of requests, the features, and a field for each
kind of response that differs. The code that makes such a response reads the field from
`BrokerConfig.release`, so that no other code names a release. If the setting is empty, the release
is TODAY (`features.py`), with everything that the broker supports.

| field | 3.9 | 4.3 | today |
|---|---|---|---|
| apis | its own versions | its own versions | all versions |
| features | kraft, metadata | its own | `features.py` |
| group_operations | read, delete, describe | and describe, alter configs (KIP-848) | as 4.3 |
| names_doubled_offsets | both answers have the error | one has | as 4.3 |
| fewest_segment_bytes | 14 | 1 MiB | 14 |
| kept_defaults | none | min.insync.replicas (KIP-966) | none |
| has_group_preview | the preview of KIP-848 | KIP-848 | as 4.3 |
| scram_nonces | any text before the nonce | the nonce only | the client's part twice, too |
| assigns_emptied_groups | no | no | yes (KAFKA-20442) |
| defaults | of groups, as the preview has them | timestamps at most an hour ahead (KIP-1030) | |
| absent | none | of message formats before v2 (KIP-724), and deprecated ones | none |

Source: responses of Apache Kafka 3.9.0 and 4.3.2 (ApiVersions, and the transcripts of `make
oracle`).
"""

from __future__ import annotations

from barnabas.broker.settings.features import (
    DELETE,
    DESCRIBE,
    GROUP_VERSION,
    READ,
    SHARE_VERSION,
    STREAMS_VERSION,
    TODAY,
    TRANSACTION_VERSION,
    Feature,
    Release,
    operations,
)
from barnabas.broker.settings.setting import HOUR_MS
from barnabas.protocol.api import Api
from barnabas.protocol.api_table import APIS

# The contents of these releases' responses to ApiVersions: key, first version, last version.
_VERSIONS_3_9 = """
    0 0-11  1 0-17  2 0-9  3 0-12  8 0-9  9 0-9  10 0-6  11 0-9  12 0-4  13 0-5  14 0-5  15 0-5
    16 0-5  17 0-1  18 0-4  19 0-7  20 0-6  21 0-2  22 0-5  23 0-4  24 0-5  25 0-4  26 0-4  27 0-1
    28 0-4  29 0-3  30 0-3  31 0-3  32 0-4  33 0-2  34 0-2  35 0-4  36 0-2  37 0-3  38 0-3  39 0-2
    40 0-2  41 0-3  42 0-2  43 0-2  44 0-1  45 0-0  46 0-0  47 0-0  48 0-1  49 0-1  50 0-0  51 0-0
    55 0-2  57 0-1  60 0-1  61 0-0  64 0-0  65 0-0  66 0-1  68 0-0  69 0-0  74 0-0  75 0-0  80 0-0
    81 0-0
"""
_VERSIONS_4_3 = """
    0 0-13  1 4-18  2 1-11  3 0-13  8 2-10  9 1-10  10 0-6  11 0-9  12 0-4  13 0-5  14 0-5  15 0-6
    16 0-5  17 0-1  18 0-4  19 2-7  20 1-6  21 0-2  22 0-5  23 2-4  24 0-5  25 0-4  26 0-5  27 1-2
    28 0-5  29 1-3  30 1-3  31 1-3  32 1-4  33 0-2  34 1-2  35 1-5  36 0-2  37 0-3  38 1-3  39 1-2
    40 1-2  41 1-3  42 0-2  43 0-2  44 0-1  45 0-1  46 0-0  47 0-0  48 0-1  49 0-1  50 0-0  51 0-0
    55 0-2  57 0-2  60 0-2  61 0-0  64 0-0  65 0-0  66 0-2  68 0-1  69 0-1  74 0-1  75 0-0  76 1-1
    77 1-1  78 1-2  79 1-2  80 0-1  81 0-0  83 0-0  84 0-0  85 0-1  86 0-0  87 0-1  88 0-0  89 0-0
    90 0-1  91 0-0  92 0-0
"""


def _versions(text: str) -> dict[int, tuple[int, int]]:
    """The first and the last version that a release supports, by API key."""
    words = text.split()
    versions = {}
    for key, span in zip(words[::2], words[1::2], strict=True):
        first, _, last = span.partition("-")
        versions[int(key)] = (int(first), int(last))
    return versions


def _apis(text: str) -> dict[int, Api]:
    """The rows of the API table, limited to the versions that a release supports."""
    versions = _versions(text)
    return {
        api.key: api._replace(
            min_version=max(api.min_version, versions[api.key][0]),
            max_version=min(api.max_version, versions[api.key][1]),
        )
        for api in APIS
        if api.key in versions
    }


def emulated(name: str) -> Release:
    """The release with the given name. Raises: KeyError."""
    return _RELEASES[name]()


def advertised_versions(name: str) -> dict[int, tuple[int, int]]:
    """The first and the last version of each API in the ApiVersions response of a release, by API
    key.
    """
    return _versions({"3.9": _VERSIONS_3_9, "4.3": _VERSIONS_4_3}[name])


def _release_3_9() -> Release:
    """Apache Kafka 3.9: what differs from the current release."""
    return TODAY._replace(
        name="3.9",
        apis=_apis(_VERSIONS_3_9),
        features=(Feature("kraft.version", 0, 1, 0), Feature("metadata.version", 1, 21, 21)),
        group_operations=operations(READ, DELETE, DESCRIBE),
        names_doubled_offsets=True,
        has_group_preview=True,
        scram_nonces="any beginning",
        assigns_emptied_groups=False,
        defaults={
            "group.consumer.assignment.interval.ms": "0",
            "group.consumer.migration.policy": "disabled",
            "group.coordinator.rebalance.protocols": "classic",
        },
    )


def _release_4_3() -> Release:
    """Apache Kafka 4.3: what differs from the current release."""
    return TODAY._replace(
        name="4.3",
        apis=_apis(_VERSIONS_4_3),
        features=(
            Feature("eligible.leader.replicas.version", 0, 1, 1),
            Feature(GROUP_VERSION, 0, 1, 1),
            Feature("kraft.version", 0, 1, 0),
            Feature("metadata.version", 7, 30, 30),
            Feature(SHARE_VERSION, 0, 1, 1),
            Feature(STREAMS_VERSION, 0, 1, 1),
            Feature(TRANSACTION_VERSION, 0, 2, 2),
        ),
        fewest_segment_bytes=1 << 20,
        kept_defaults=("min.insync.replicas",),
        scram_nonces="exact",
        assigns_emptied_groups=False,
        defaults={
            "log.message.timestamp.after.max.ms": str(HOUR_MS),
            "num.recovery.threads.per.data.dir": "2",
        },
        absent=_GONE_IN_4,
    )


_GONE_IN_4 = frozenset({
    "message.downconversion.enable", "message.format.version",
    "message.timestamp.difference.max.ms", "log.message.downconversion.enable",
    "log.message.format.version", "log.message.timestamp.difference.max.ms",
    "offsets.commit.required.acks",
})  # fmt: skip


_RELEASES = {"3.9": _release_3_9, "4.3": _release_4_3}
