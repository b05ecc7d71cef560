"""The bank's accounts: where their records are, and what a record says.

An account's key is its number, and a record is an amount that is added to it. The balance of an
account is the sum of its records, and the bank's total is the sum of all of them: a transfer takes
an amount from one account and gives it to another, in one transaction, so it changes no total.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

TOPICS = ("checking", "savings", "loans")
PARTITIONS = 2
ACCOUNTS = 30
DEPOSIT = 1000
TOTAL = ACCOUNTS * DEPOSIT
SETTING = "barnabas.transactions.whole"
CLIENT: dict[str, Any] = {
    "log_level": 2,  # hides lines about lost connections, since the broker is killed
    "reconnect.backoff.max.ms": 200,
}
TIMEOUT_S = 60.0


class Place(NamedTuple):
    """Where an account's records are."""

    topic: str
    partition: int


def place_of(account: int) -> Place:
    """The topic and partition of an account: neighbours are in different topics."""
    return Place(TOPICS[account % len(TOPICS)], account // len(TOPICS) % PARTITIONS)


def all_places() -> list[Place]:
    """All partitions of the bank."""
    return [Place(topic, partition) for topic in TOPICS for partition in range(PARTITIONS)]


def add(producer: Any, account: int, amount: int) -> None:
    """Put the record of an account's change into the producer's queue."""
    topic, partition = place_of(account)
    producer.produce(topic, str(amount).encode(), str(account).encode(), partition=partition)


def create_topics(servers: str, *, whole: bool) -> None:
    """Create the topics, with or without the setting that keeps their ends on cuts."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": servers, **CLIENT})
    config = {SETTING: str(whole).lower()}
    topics = [NewTopic(topic, PARTITIONS, 1, config=config) for topic in TOPICS]
    for future in admin.create_topics(topics).values():
        future.result(TIMEOUT_S)


def open_accounts(servers: str) -> None:
    """Give each account its first deposit, all of them in one transaction."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "transactional.id": "founder", **CLIENT})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for account in range(ACCOUNTS):
        add(producer, account, DEPOSIT)
    producer.commit_transaction(TIMEOUT_S)


def total_of(values: Iterable[bytes | str]) -> int:
    """The sum of the amounts in records."""
    return sum(int(value) for value in values)
