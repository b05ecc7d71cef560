"""`barnabas txn why-stuck`: what is asked of the cluster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.cli.why_stuck import find_open_transactions
from barnabas.protocol.topic_partition import TopicPartition

PARTITION = TopicPartition("orders", 0)


class FakeAdmin:
    """An admin client of a cluster with one producer on orders-0."""

    def __init__(self, listed: str | None, **answers: Any) -> None:
        self.listed = listed
        self.answers = answers

    def describe_producers(self, partitions: list[Any]) -> dict[Any, Any]:
        producers = [
            SimpleNamespace(
                producer_id=7,
                producer_epoch=2,
                coordinator_epoch=3,
                last_timestamp=5,
                current_transaction_start_offset=start,
            )
            for start in (100, -1)
        ]
        return {partitions[0]: SimpleNamespace(active_producers=producers)}

    def list_transactions(self, producer_id_filters: list[int]) -> dict[int, list[Any]]:
        assert producer_id_filters == [7]
        row = SimpleNamespace(producer_id=7, transactional_id=self.listed)
        return {1: [row] if self.listed else []}

    def describe_transactions(self, names: list[str]) -> dict[str, Any]:
        answers = {
            "state": "Ongoing",
            "producer_epoch": 2,
            "transaction_start_time_ms": 1,
            "transaction_timeout_ms": 60_000,
            "topic_partitions": {("orders", 0)},
            **self.answers,
        }
        return {name: SimpleNamespace(**answers) for name in names}

    def client_hosts(self, names: list[str]) -> dict[str, str]:
        return dict.fromkeys(names, "10.0.0.7")


@pytest.mark.parametrize(
    ("admin", "is_hanging"),
    [
        (FakeAdmin("pay"), False),
        (FakeAdmin("pay", state="PrepareAbort", producer_epoch=3), False),
        (FakeAdmin("pay", state="CompleteAbort"), True),
        (FakeAdmin("pay", topic_partitions={("orders", 1)}), True),
        (FakeAdmin("pay", producer_epoch=1), True),
        (FakeAdmin(None), True),
    ],
)
def test_transaction_hangs_where_its_coordinator_will_not_end_it(
    admin: FakeAdmin, is_hanging: bool
) -> None:
    (found,) = find_open_transactions(admin, PARTITION)
    assert (found.start_offset, found.coordinator_epoch) == (100, 3)
    assert found.is_hanging is is_hanging
    assert found.client_address == (None if admin.listed is None else "10.0.0.7")
