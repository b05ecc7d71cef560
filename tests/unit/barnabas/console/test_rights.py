"""What a user with restricted rights sees of the broker."""

from __future__ import annotations

from barnabas.broker.observe import (
    CommittedOffsetState,
    GroupState,
    OpenTransaction,
    PartitionState,
    TransactionalIdState,
)
from barnabas.broker.security.acls import Operation, ResourceType
from barnabas.console import views
from barnabas.console.rights import restricted

TOPIC, GROUP, TXN = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID


def partition(topic: str, *producers: int) -> PartitionState:
    open_ones = tuple(OpenTransaction(producer, 0, 5, 1) for producer in producers)
    return PartitionState(topic, 0, 0, 5, 9, 9, 100, 1, 1, open_ones)


def identity(name: str, producer_id: int, *topics: str) -> TransactionalIdState:
    places = tuple((topic, 0) for topic in topics)
    return TransactionalIdState(name, producer_id, 0, "Ongoing", 500, 60_000, places)


OBSERVED = views.Observed(
    (partition("orders", 7, 8), partition("secret")),
    (
        identity("pay", 7, "orders", "secret"),
        identity("night", 8, "orders"),
        identity("hidden", 9, "secret"),
    ),
    (
        GroupState(
            "kitchen", "Stable", 1,
            (CommittedOffsetState("orders", 0, 3, 6), CommittedOffsetState("secret", 0, 1, 8)), 0,
        ),
        GroupState("spies", "Empty", 0, (), 0),
    ),
    {"pay": "10.0.0.1", "night": "10.0.0.2", "hidden": "10.0.0.3"},
    1000,
)  # fmt: skip


def seen(*allowed: tuple[int, str]) -> views.Broker:
    """Return the broker as it appears to a user who may describe only the `allowed` pairs of
    resource type and name. `restricted` is a generator, so that long work can be interrupted; here
    it runs to its end.
    """

    def sees(operation: int, kind: int, name: str) -> bool:
        assert operation == Operation.DESCRIBE
        return (kind, name) in allowed

    look = restricted(OBSERVED, sees)
    while True:
        try:
            next(look)
        except StopIteration as end:
            return views.Broker(end.value)


def test_without_rights_nothing_is_seen() -> None:
    observed = seen().observed
    assert (observed.partitions, observed.transactional_ids, observed.groups) == ((), (), ())
    assert not observed.clients
    assert set(views.totals(seen()).values()) == {0}


def test_with_all_rights_all_is_seen() -> None:
    kinds = ((TOPIC, ("orders", "secret")), (GROUP, ("kitchen", "spies")))
    names = [(kind, name) for kind, names in kinds for name in names]
    assert seen(*names, *((TXN, name) for name in OBSERVED.clients)).observed == OBSERVED


def test_a_group_is_shown_without_the_topics_that_the_user_may_not_describe() -> None:
    observed = seen((TOPIC, "orders"), (GROUP, "kitchen")).observed
    (group,) = observed.groups
    assert [row.topic for row in group.offsets] == ["orders"] and group.lag == 6
    assert {row.topic for row in observed.partitions} == {"orders"}


def test_a_transaction_is_shown_without_a_transactional_id_that_may_not_be_described() -> None:
    """The user does not see the transactional id of producer 8. This alone does not make the
    transaction appear as hanging.
    """
    broker = seen((TOPIC, "orders"), (TXN, "pay"))
    rows = {
        row.producer_id: views.transaction_value(row, broker) for row in broker.open_transactions
    }
    assert set(rows) == {7, 8}, "the third has no partition that may be described"
    assert (rows[7]["transactional_id"], rows[7]["client"]) == ("pay", "10.0.0.1")
    assert [place["topic"] for place in rows[7]["places"]] == ["orders"]
    assert (rows[8]["transactional_id"], rows[8]["client"]) == (None, None)
    assert not rows[8]["hanging"]
