"""Starts and stops on a disk that has not one byte left: reads are served, writes are refused."""

from __future__ import annotations

import errno

from helpers.disk_broker import DiskBroker
from helpers.full_disk import ALL
from sim.disk import Refusal

NO_SPACE = Refusal(ALL, errno.ENOSPC)


def test_an_epoch_of_a_move_without_space_is_not_given_again() -> None:
    """Clients have it by Metadata; after a restart another broker leads, in a later epoch."""
    b = DiskBroker(barnabas_brokers="3")
    b.topic("t")
    b.produce("t", (b"0",))
    b.disk.refuse(NO_SPACE)
    node_ids = list(b.broker.cluster.nodes)
    epochs = [b.broker.topics.leader_epoch("t", 0)]
    for node_id in (*node_ids[1:], *node_ids):
        b.broker.failover.take_away(node_id, b.now_ms)
        b.broker.failover.give_back(node_id, b.now_ms)
        epochs.append(b.broker.topics.leader_epoch("t", 0))
    assert epochs == sorted(epochs)
    assert epochs[-1] > epochs[0]
    b.disk.refuse(None)
    b.lose_power()
    assert b.broker.topics.leader_epoch("t", 0) > epochs[-1]
