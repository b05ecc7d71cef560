"""A teller: a process that moves money between accounts, one transaction after the other.

    python teller.py SERVERS NAME KIND        (KIND is quick or slow)

A quick teller aborts one transfer in ten. A slow one leaves each transfer open for seconds between
its two records, as a program does that hangs, and then commits or aborts. `bank.py` kills tellers
at any moment; a teller that is started again under the same name aborts what its predecessor left.
"""

from __future__ import annotations

import random
import sys
import time

from accounts import ACCOUNTS, CLIENT, TIMEOUT_S, TOPICS, add
from confluent_kafka import KafkaException, Producer

PAUSE_S = 0.002
HANGS_S = (0.5, 3.0)
ABORTS = 0.1
TRANSACTION_TIMEOUT_MS = 10_000  # for the tellers that are killed and not started again


def new_producer(servers: str, name: str) -> Producer:
    """Begin a session under the teller's name, which aborts what an earlier one left open."""
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "transactional.id": f"teller-{name}",
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            "linger.ms": 0,
            **CLIENT,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    return producer


def transfer(producer: Producer, chance: random.Random, *, hangs: bool) -> None:
    """Move an amount between two accounts in different topics.

    Raises: KafkaException.
    """
    payer = chance.randrange(ACCOUNTS)
    payee = (payer + chance.randrange(1, len(TOPICS))) % ACCOUNTS
    amount = chance.randint(1, 100)
    producer.begin_transaction()
    legs = [(payer, -amount), (payee, amount)]
    chance.shuffle(legs)
    add(producer, *legs[0])
    if hangs:
        producer.flush(TIMEOUT_S)
        time.sleep(chance.uniform(*HANGS_S))
    add(producer, *legs[1])
    if chance.random() < ABORTS:
        producer.flush(TIMEOUT_S)
        producer.abort_transaction(TIMEOUT_S)
    else:
        producer.commit_transaction(TIMEOUT_S)


def main() -> None:
    """Work until the process is stopped. After an error that ends a producer, make another one."""
    servers, name, kind = sys.argv[1:]
    chance = random.Random(name)
    producer = new_producer(servers, name)
    print("ready", flush=True)
    while True:
        try:
            transfer(producer, chance, hangs=kind == "slow")
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                try:
                    producer.abort_transaction(TIMEOUT_S)
                    continue
                except KafkaException:
                    pass
            producer = new_producer(servers, name)
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    main()
