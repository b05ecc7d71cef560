"""Injected faults: which requests they apply to, invalid rules, and the error responses."""

from __future__ import annotations

import random
from itertools import product
from typing import Any
from uuid import UUID

import pytest

from barnabas.protocol.errors import Code
from barnabas.protocol.framing import SIZE, encode_request
from barnabas.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)
from barnabas.protocol.messages.message import Message
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.records import NewRecord, encode_batch
from barnabas.test_control.faults import Action, FaultTable, fault_of
from barnabas.test_control.observed import (
    ObservedRequest,
    answer_of,
    error_codes,
    observe,
    plain,
    with_fetch_session,
)


def seen(request: Message, version: int, client_id: str = "client") -> ObservedRequest:
    """A request in the form in which the test control observes it."""
    observed = observe(memoryview(encode_request(request, version, 7, client_id))[4:])
    assert observed is not None
    return observed


def produce(topic: str, *partitions: int, transactional_id: str | None = None) -> ProduceRequest:
    rows = [PartitionProduceData(index=index, records=b"") for index in partitions]
    return ProduceRequest(
        transactional_id=transactional_id,
        topic_data=[TopicProduceData(name=topic, partition_data=rows)],
    )


END = EndTxnRequest(transactional_id="shop", producer_id=5, producer_epoch=0, committed=True)


def test_an_observed_request_has_its_topics_transactional_ids_and_groups() -> None:
    observed = seen(produce("orders", 1, 3, transactional_id="shop"), 9)
    assert (observed.api.name, observed.version, observed.client_id) == ("Produce", 9, "client")
    assert observed.topics == {"orders": {1, 3}}
    assert observed.transactional_ids == {"shop"}
    fetched = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="kitchen", topics=None)])
    assert seen(fetched, 8).groups == {"kitchen"}


def test_a_fetch_has_the_partitions_of_its_session_except_the_forgotten_ones() -> None:
    topic = UUID(int=7)
    fetch = FetchRequest(
        session_id=3,
        session_epoch=1,
        topics=[FetchTopic(topic_id=topic, partitions=[FetchPartition(partition=2)])],
        forgotten_topics_data=[ForgottenTopic(topic_id=topic, partitions=[0])],
    )
    observed = seen(fetch, 13)
    assert observed.topics == {str(topic): {2}}
    other = UUID(int=8)
    remembered = [(topic, 0), (topic, 1), (other, 5)]
    assert with_fetch_session(observed, remembered).topics == {str(topic): {1, 2}, str(other): {5}}


def test_a_request_that_is_none() -> None:
    assert observe(memoryview(b"\x00\x00")) is None
    assert observe(memoryview(bytes.fromhex("7fff0000000000010000"))) is None


@pytest.mark.parametrize(
    ("rule", "meets"),
    [
        ({}, True),
        ({"api": "produce"}, True),
        ({"api": "Fetch"}, False),
        ({"version": 9}, True),
        ({"version": 8}, False),
        ({"client_id": "client"}, True),
        ({"client_id": "other"}, False),
        ({"connection": 4}, True),
        ({"connection": 5}, False),
        ({"topic": "orders"}, True),
        ({"topic": "order"}, False),
        ({"partition": 3}, True),
        ({"partition": 2}, False),
        ({"topic": "orders", "partition": 1}, True),
        ({"topic": "orders", "partition": 0}, False),
        ({"transactional_id": "shop"}, True),
        ({"transactional_id": "shops"}, False),
        ({"group": "kitchen"}, False),
    ],
)
def test_a_rule_applies_to_requests_that_fit_all_its_fields(
    rule: dict[str, Any], meets: bool
) -> None:
    fault = fault_of({"action": "hold", **rule})
    assert fault.is_met_by(seen(produce("orders", 1, 3, transactional_id="shop"), 9), 4) is meets
    assert fault.met == meets


def test_a_rule_applies_to_the_nth_fitting_request_or_to_a_number_of_them() -> None:
    nth = fault_of({"action": "cut", "api": "EndTxn", "nth": 2})
    others, ends = seen(produce("t", 0), 9), seen(END, 3)
    met = [nth.is_met_by(request, 1) for request in (others, ends, others, ends, ends)]
    assert met == [False, False, False, True, False]
    times = fault_of({"action": "cut", "api": "EndTxn", "times": 2})
    assert [times.is_met_by(ends, 1) for _ in range(4)] == [True, True, False, False]


@pytest.mark.parametrize("chance", [1.0, 0.5])
def test_which_of_the_matching_requests_meet_a_fault(chance: float) -> None:
    """With a `chance` below 1, a matching request may be spared at random. Such a request does not
    count towards `times`.
    """
    ends = seen(EndTxnRequest("shop", 1, 0, committed=True), 3)
    others = seen(OffsetFetchRequest("g", []), 5)
    for seed, nth, times in product(range(5), (None, 1, 3), (None, 1, 4)):
        values = {"action": "cut", "api": "EndTxn", "chance": chance, "seed": seed}
        values |= {"nth": nth, "times": times}
        fault, drawn = fault_of(values), random.Random(seed)
        met = 0
        for number in range(1, 41):
            assert not fault.is_met_by(others, 1)
            is_met = (nth in (None, number)) and (times is None or met < times)
            is_met = is_met and (chance == 1.0 or drawn.random() < chance)
            met += is_met
            assert fault.is_met_by(ends, 1) == is_met, (seed, nth, times, number)
        assert fault.met == met
        assert nth is not None or met == (times or met) > 0


def test_chance_is_the_same_for_the_same_seed() -> None:
    def draws(seed: int) -> list[bool]:
        fault = fault_of({"action": "cut", "chance": 0.5, "seed": seed})
        return [fault.is_met_by(seen(END, 3), 1) for _ in range(64)]

    assert draws(1) == draws(1)
    assert draws(1) != draws(2)
    assert 16 < sum(draws(1)) < 48
    never = fault_of({"action": "cut", "chance": 0})
    assert not any(never.is_met_by(seen(END, 3), 1) for _ in range(64))


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({}, "`action` has to be one of: delay, "),
        ({"action": "explode"}, "`action` has to be one of"),
        ({"action": "delay"}, "needs `ms`"),
        ({"action": "delay", "ms": "5"}, "`ms` has to be int"),
        ({"action": "cut", "times": True}, "`times` has to be int"),
        ({"action": "cut", "topc": "t"}, "no 'topc'"),
        ({"action": "cut", "api": "EndTx"}, "perhaps EndTxn"),
        ({"action": "cut", "chance": 2}, "`chance`"),
        ({"action": "cut", "nth": 0}, "counts from 1"),
        ({"action": "error", "api": "EndTxn"}, "needs `code`"),
        ({"action": "error", "code": "NOT_COORDINATOR"}, "needs `api`"),
        ({"action": "error", "api": "EndTxn", "code": "NOT_A_CODE"}, "not an error code"),
        ({"action": "cut", "code": 16}, "no other action has one"),
    ],
)
def test_what_is_wrong_with_a_rule_is_said(values: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        fault_of(values)


def test_a_rule_has_its_error_code_by_name_or_number() -> None:
    for code in ("not_coordinator", "NOT_COORDINATOR", 16, "16"):
        fault = fault_of({"action": "error", "api": "EndTxn", "code": code})
        assert fault.code is Code.NOT_COORDINATOR
        assert fault.as_values() == {
            "id": 0, "action": "error", "api": "EndTxn", "code": "NOT_COORDINATOR", "met": 0,
        }  # fmt: skip


def test_rules_hold_until_they_are_removed() -> None:
    table = FaultTable()
    first = table.add(fault_of({"action": "hold"}))
    second = table.add(fault_of({"action": "twice", "api": "EndTxn"}))
    assert [fault.action for fault in table.met_by(seen(END, 3), 1)] == [Action.HOLD, Action.TWICE]
    table.remove(first.number)
    assert table.met_by(seen(END, 3), 1) == [second]
    assert table.clear() == [second]
    assert not table


def test_records_are_reported_as_the_headers_of_their_batches() -> None:
    batch = bytes(
        encode_batch([NewRecord(None, b"v", 5), NewRecord(None, b"w", 5)], producer_id=9,
                     producer_epoch=1, base_sequence=3)
    )  # fmt: skip
    reported = plain(PartitionProduceData(index=2, records=batch))
    assert reported["index"] == 2
    assert reported["records"]["bytes"] == len(batch)
    (row,) = reported["records"]["batches"]
    assert (row["records"], row["producer_id"], row["base_sequence"]) == (2, 9, 3)


def test_a_response_that_cannot_be_decoded_gives_none() -> None:
    assert answer_of(seen(END, 3), b"\x00\x00\x00\x04\x00\x00\x00\x07") is None
    frame = bytes(4) + SIZE.pack(7) + b"\x00" + EndTxnResponse(error_code=90).encode(3)
    assert error_codes(answer_of(seen(END, 3), frame)) == ["PRODUCER_FENCED"]
