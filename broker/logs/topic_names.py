"""Valid names of topics: Apache Kafka's rules."""

from __future__ import annotations

import re
from collections.abc import Iterable

from barnabas.protocol.errors import Code, KafkaError

LONGEST_NAME = (
    249  # a directory's name has at most 255 bytes, and also contains the partition and a suffix
)
CLUSTER_METADATA = "__cluster_metadata"

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Check a topic's name. Raises: KafkaError INVALID_TOPIC_EXCEPTION."""
    if not name:
        raise KafkaError(Code.INVALID_TOPIC_EXCEPTION, "The topic's name is empty: give it one.")
    if name in (".", ".."):
        raise KafkaError(
            Code.INVALID_TOPIC_EXCEPTION,
            f"No topic may be called '{name}': it has a meaning as a directory. Choose another.",
        )
    if len(name) > LONGEST_NAME:
        raise KafkaError(
            Code.INVALID_TOPIC_EXCEPTION,
            f"The topic's name has {len(name)} characters: shorten it to at most {LONGEST_NAME}.",
        )
    if not _LEGAL.fullmatch(name):
        raise KafkaError(
            Code.INVALID_TOPIC_EXCEPTION,
            f"The topic's name '{name}' has characters that are not allowed: use ASCII letters, "
            "digits, '.', '_' and '-' alone.",
        )


class TakenNames:
    """The names of all topics. '.' and '_' count as the same letter, since Kafka does not
    distinguish them in the names of metrics, so two such topics would share metrics.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._by_unified = {_unified(name): name for name in names}

    def add(self, name: str) -> None:
        self._by_unified[_unified(name)] = name

    def check(self, name: str) -> None:
        """Check a new name. Raises: KafkaError INVALID_TOPIC_EXCEPTION if it differs from a taken
        name only by '.' and '_'.
        """
        other = self._by_unified.get(_unified(name))
        if other is not None and other != name:
            raise KafkaError(
                Code.INVALID_TOPIC_EXCEPTION,
                f"The topic's name '{name}' differs from that of topic '{other}' by '.' and '_' "
                "alone: choose a name that differs by more.",
            )


def _unified(name: str) -> str:
    return name.replace(".", "_")
