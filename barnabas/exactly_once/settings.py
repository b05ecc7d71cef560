"""Settings: when to commit, how often to repeat, and the settings of the clients."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from barnabas.exactly_once.errors import ConfigurationError

GroupProtocol: TypeAlias = Literal["classic", "consumer"]
Start: TypeAlias = Literal["earliest", "latest"]

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,180}")
_OURS = {
    "group.id": "the argument `application`",
    "group.instance.id": "the argument `instance`",
    "group.protocol": "the argument `group_protocol`",
    "transactional.id": "the arguments `application` and `instance`",
    "transaction.timeout.ms": "the argument `transaction_timeout_s`",
    "enable.auto.commit": "the transaction, which contains the offsets",
    "enable.auto.offset.store": "the transaction, which contains the offsets",
    "isolation.level": "read_committed, without which aborted records would be processed",
    "enable.idempotence": "the transaction, which needs it",
    "auto.offset.reset": "the argument `starts`",
    "enable.partition.eof": "the argument `until_end` of `run`",
}


@dataclass(frozen=True)
class Commit:
    """When an open transaction is committed: at the first bound that it reaches.

    seconds: since its first record was read. records: records read. bytes: of values and keys,
    read and written.
    """

    seconds: float = 0.1
    records: int = 100_000
    bytes: int = 64 * 1024 * 1024

    def __post_init__(self) -> None:
        if self.seconds < 0 or self.records < 1 or self.bytes < 1:
            raise ConfigurationError(
                f"{self}: seconds must not be negative, records and bytes at least 1"
            )


@dataclass(frozen=True)
class Retry:
    """How often the handler is called for a record, and how long to wait in between.

    Before each repetition the transaction is aborted and its records are read again, so that no
    reader waits for it. The wait doubles from backoff_s up to most_backoff_s.
    """

    attempts: int = 1
    backoff_s: float = 0.1
    most_backoff_s: float = 10.0

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.backoff_s < 0 or self.most_backoff_s < 0:
            raise ConfigurationError(f"{self}: attempts must be at least 1, waits not negative")

    def wait_s(self, failures: int) -> float:
        """The wait after so many failures (at least 1) of one record."""
        return float(min(self.most_backoff_s, self.backoff_s * 2 ** min(failures - 1, 30)))


def check_name(what: str, name: str) -> str:
    """Raises: ConfigurationError unless the name can be part of a topic's name."""
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"{what}={name!r}: use up to 180 letters, digits, '.', '_' and '-', since names of "
            "topics and of the transactional id begin with it"
        )
    return name


def topics_of(reads: str | list[str] | tuple[str, ...]) -> list[str]:
    """The input topics. Raises: ConfigurationError."""
    topics = [reads] if isinstance(reads, str) else list(reads)
    if not topics or len(set(topics)) < len(topics) or any(each.startswith("^") for each in topics):
        raise ConfigurationError(f"reads={reads!r}: name one or more topics, each once, no pattern")
    return topics


def _given(settings: Mapping[str, Any] | None, argument: str) -> dict[str, Any]:
    """The user's settings of a client. Raises: ConfigurationError for those that are ours."""
    for name in settings or {}:
        if name in _OURS:
            raise ConfigurationError(f"{argument}[{name!r}] cannot be set: it is {_OURS[name]}")
    return dict(settings or {})


@dataclass(frozen=True)
class Clients:
    """The settings of all clients of one instance.

    instance: a name that stays the same over restarts (static membership), or None.
    unique: ends the transactional id of an instance without a name.
    """

    servers: str
    application: str
    instance: str | None
    unique: str
    group_protocol: GroupProtocol = "classic"
    transaction_timeout_s: float = 10.0
    client: Mapping[str, Any] | None = None
    consumer_settings: Mapping[str, Any] | None = None
    producer_settings: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        check_name("application", self.application)
        if self.instance is not None:
            check_name("instance", self.instance)
        if self.group_protocol not in ("classic", "consumer"):
            raise ConfigurationError(
                f"group_protocol={self.group_protocol!r}: 'classic', or 'consumer' (KIP-848)"
            )
        if self.transaction_timeout_s < 1:
            raise ConfigurationError("transaction_timeout_s must be at least 1")
        for settings, argument in (
            (self.client, "client"),
            (self.consumer_settings, "consumer"),
            (self.producer_settings, "producer"),
        ):
            _given(settings, argument)
        given = {**(self.client or {}), **(self.consumer_settings or {})}
        if self.instance is not None and self.is_cooperative(given) and self._is_classic:
            raise ConfigurationError(
                "partition.assignment.strategy=cooperative-sticky with an instance name: if an "
                "instance ends while it gives partitions away, and comes back under its name, it "
                "gets what the group has decided, and nobody gives the partitions to the other "
                "until the next rebalance. Use 'range', group_protocol='consumer', or no name"
            )

    @property
    def _is_classic(self) -> bool:
        return self.group_protocol == "classic"

    @property
    def transactional_id(self) -> str:
        return f"{self.application}-{self.instance or self.unique}"

    def common(self) -> dict[str, Any]:
        """The settings of every client, of the admin client, too."""
        return {
            "bootstrap.servers": self.servers,
            "client.id": self.transactional_id,
            "reconnect.backoff.max.ms": 1000,
            **(self.client or {}),
        }

    def producer(self) -> dict[str, Any]:
        """The settings of the producer.

        After the loss of all brokers, librdkafka begins again with the bootstrap servers, and may
        wait for ever for a group coordinator that it has given up (its issues 5456 and 5511). So
        it continues with the brokers that it knows.
        """
        return {
            **self.common(),
            "linger.ms": 5,
            "metadata.recovery.strategy": "none",
            **(self.producer_settings or {}),
            "enable.idempotence": True,
            "transactional.id": self.transactional_id,
            "transaction.timeout.ms": int(self.transaction_timeout_s * 1000),
        }

    def _reading(self) -> dict[str, Any]:
        return {
            **self.common(),
            "queued.max.messages.kbytes": 16 * 1024,
            "fetch.wait.max.ms": 100,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
        }

    def consumer(self, *, range_assignor: bool, until_end: bool) -> dict[str, Any]:
        """The settings of the consumer.

        Takes:  range_assignor, whether partitions with one number have to be assigned together.
        Source: KIP-345: a static member that comes back gets its former assignment, without a
                rebalance. Cooperative instances need the second of two rebalances (KIP-429), for
                which the member asks that has given partitions away. If it was killed before, no
                member asks.
        """
        settings = {**self._reading(), "enable.partition.eof": until_end}
        if self._is_classic:
            settings["partition.assignment.strategy"] = (
                "range" if range_assignor or self.instance is not None else "cooperative-sticky"
            )
        else:
            settings["group.protocol"] = "consumer"
            if range_assignor:
                settings["group.remote.assignor"] = "range"
        settings |= self.consumer_settings or {}
        settings["group.id"] = self.application
        if self.instance is not None:
            settings["group.instance.id"] = self.instance
        return settings

    def is_cooperative(self, consumer: Mapping[str, Any]) -> bool:
        """Whether the consumer's assignments change by increments."""
        return not self._is_classic or "cooperative" in str(
            consumer.get("partition.assignment.strategy")
        )

    def restorer(self) -> dict[str, Any]:
        """The settings of a consumer that reads changelogs, and is in no group."""
        return {
            **self._reading(),
            "group.id": f"{self.application}-restoring",
            "enable.partition.eof": True,
        }
