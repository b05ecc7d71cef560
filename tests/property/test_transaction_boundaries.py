"""Requests of the transaction protocol with ids and epochs at the ends of their ranges, before and
after a replay.

They are refused or succeed, and their effects never stop the broker: not immediately, not when the
transaction times out, and not at the next start.
"""

from __future__ import annotations

from typing import Any

from helpers.examples import drawn
from helpers.txn_host import TxnHost
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.coordinator.result import partition_for
from barnabas.coordinator.transactions.transaction_records import encode_key, encode_value
from barnabas.coordinator.transactions.transaction_state import (
    TransactionMetadata,
    TransactionState,
)
from barnabas.protocol.errors import Code

T0 = {"t": [0]}
IDS = st.sampled_from(["known", "known", "known", -1, 0, 2**31, 2**63 - 1, -(2**63)])
EPOCHS = st.sampled_from(["current", "current", "next", -1, 0, 1, 32765, 32766, 32767, -32768])
STEPS = st.one_of(
    st.tuples(st.just("init"), IDS, EPOCHS),
    st.tuples(
        st.sampled_from(["add", "offsets", "commit", "abort", "verify", "batch"]), IDS, EPOCHS
    ),
    st.tuples(
        st.sampled_from(["time out", "new session", "start", "power loss", "expire"]),
        st.none(),
        st.none(),
    ),
)
FIRST = st.tuples(
    st.sampled_from([None, 0, 32764, 32765, 32766, 32767]),
    st.sampled_from(list(TransactionState)[:6]),
    st.booleans(),
)
REFUSED = (42, 47, 48, 49, 51, 90)


def found_in_a_log(host: TxnHost, epoch: int, state: TransactionState, fence: bool) -> None:
    """Append a transaction's state that a log may contain, written by this version, an earlier
    version or another broker.
    """
    at_rest = state in (
        TransactionState.EMPTY,
        TransactionState.COMPLETE_COMMIT,
        TransactionState.COMPLETE_ABORT,
    )
    metadata = TransactionMetadata(
        "txn",
        host._ids.allocate(),
        epoch,
        60_000,
        state,
        {} if at_rest else {("t", 0): None},
        host.now_ms,
        host.now_ms,
        epoch_is_a_fence=fence,
    )
    host._append(
        partition_for("txn", host.partition_count), encode_key("txn"), encode_value(metadata)
    )
    host.flushed_count = len(host.log)
    host.crash()


def meant(host: TxnHost, producer_id: Any, epoch: Any) -> tuple[int, int]:
    """The producer id and epoch that a step's placeholders mean at this point."""
    found = host.coordinator.metadata("txn")
    known = (77, 0) if found is None else found.producer
    if epoch in ("current", "next"):
        epoch = min(known[1] + (epoch == "next"), 32767)
    return known[0] if producer_id == "known" else producer_id, epoch


def took(host: TxnHost, step: str, producer_id: int, epoch: int) -> bool:
    """Send the request of a step, and return whether it succeeded."""
    match step:
        case "init":
            answer = host.init("txn", pid=producer_id, epoch=epoch)
            code = answer.error_code
            assert code or 0 <= answer.producer_epoch < 32767, "no producer has the highest epoch"
            return code == Code.NONE and (producer_id, epoch) != (-1, -1)
        case "add":
            code = host.add("txn", producer_id, epoch, T0)[("t", 0)]
        case "offsets":
            code = host.add_offsets("txn", producer_id, epoch, "group")
        case "commit" | "abort":
            code = host.end("txn", producer_id, epoch, step == "commit")
        case "verify":
            code = host.coordinator.additions.verify("txn", producer_id, epoch, "t", 0, 9)
        case _:
            ((_, codes),) = host.add_batch([("txn", producer_id, epoch, False, T0)], version=4)
            code = codes[("t", 0)]
    assert code == Code.NONE or code in REFUSED
    return bool(code == Code.NONE)


@settings(max_examples=drawn(300))
@given(first=FIRST, steps=st.lists(STEPS, max_size=12))
def test_no_request_and_no_start_meets_an_epoch_that_it_cannot_go_on_with(
    first: Any, steps: list[Any]
) -> None:
    """No request and no restart fails in an unexpected way, whatever epoch the log contains, and
    only a producer that got its epoch from the coordinator has requests accepted.
    """
    host = TxnHost()
    granted: set[tuple[int, int]] = set()
    if first[0] is not None:
        found_in_a_log(host, *first)
        found = host.coordinator.metadata("txn")
        if found is not None and found.is_epoch_given_out:
            granted.add(found.producer)
    for step, producer_id, epoch in steps:
        match step:
            case "time out":
                host.tick(60_000)
            case "expire":
                host.tick(host.settings.transactional_id_expiration_ms)
            case "start":
                host.crash()
            case "power loss":
                host.crash()
                host.handle(host.coordinator.sessions.on_power_loss(host.event_ms()))
            case "new session":
                answer = host.init("txn")
                assert answer.error_code == Code.NONE
            case _:
                asked_by = meant(host, producer_id, epoch)
                was_known = host.coordinator.metadata("txn") is not None
                if took(host, step, *asked_by) and was_known:
                    assert asked_by in granted, f"{step} of {asked_by}, which no producer got"
        found = host.coordinator.metadata("txn")
        if found is not None and found.state is TransactionState.EMPTY:
            granted.add(found.producer)  # the coordinator has begun this session
    host.crash()
    host.tick(60_000)
    assert host.state("txn") not in ("Ongoing", "PrepareCommit", "PrepareAbort")
    assert host.init("txn").error_code == Code.NONE
