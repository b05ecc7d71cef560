"""Values of __transaction_state. Encoding any possible state of a transaction and decoding it gives
the same state.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordinator.transactions.transaction_records import (
    decode_key,
    decode_value,
    encode_any_value,
    encode_key,
    encode_value,
)
from barnabas.coordinator.transactions.transaction_state import (
    TransactionMetadata,
    TransactionState,
)
from barnabas.protocol.topic_partition import TopicPartition

int16, int32, int64 = (st.integers(-(1 << bits), (1 << bits) - 1) for bits in (15, 31, 63))
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
topics = st.dictionaries(names, st.lists(int32, min_size=1, max_size=5, unique=True), max_size=5)


@given(
    names,
    int64,
    int16,
    int32,
    st.sampled_from(TransactionState),
    topics,
    int64,
    int64,
    int64,
    int16,
    int64,
    int16,
    int16,
)
def test_a_transactions_state_is_decoded_as_it_was_encoded(
    name: str,
    pid: int,
    epoch: int,
    timeout_ms: int,
    state: TransactionState,
    partitions: dict[str, list[int]],
    updated_ms: int,
    started_ms: int,
    previous: int,
    last_epoch: int,
    following: int,
    following_epoch: int,
    version: int,
) -> None:
    pairs = (
        {}
        if state is TransactionState.EMPTY
        else {(topic, index): None for topic, indexes in partitions.items() for index in indexes}
    )
    metadata = TransactionMetadata(
        name,
        pid,
        epoch,
        timeout_ms,
        state,
        pairs,
        updated_ms,
        started_ms,
        previous,
        last_epoch,
        following,
        following_epoch,
        version,
    )
    read = decode_value(name, encode_value(metadata))
    assert read == metadata
    assert list(read.partitions) == list(pairs)
    assert decode_key(encode_key(name)) == name


@given(st.binary(max_size=80))
def test_any_bytes_are_decoded_or_refused_with_value_error(value: bytes) -> None:
    for start in (b"", b"\0\0", b"\0\1"):
        try:
            decode_value("id", start + value)
        except ValueError:
            pass


@given(
    int64,
    st.sampled_from(TransactionState),
    topics,
    st.one_of(st.just(-1), int64),
    st.one_of(st.just(-1), int16),
    st.sampled_from([0, 0, 2, 3]),
    st.booleans(),
    st.one_of(st.just(-1), int64),
)
def test_the_usual_values_have_the_bytes_of_the_generated_encoder(
    pid: int,
    state: TransactionState,
    partitions: dict[str, list[int]],
    previous: int,
    last_epoch: int,
    version: int,
    is_fence: bool,
    latest_ms: int,
) -> None:
    pairs = (
        {}
        if state is TransactionState.EMPTY
        else {
            TopicPartition(topic, index): None
            for topic, indexes in partitions.items()
            for index in indexes
        }
    )
    metadata = TransactionMetadata(
        "id",
        pid,
        3,
        60_000,
        state,
        pairs,
        pid // 2,
        pid // 3,
        previous,
        last_epoch,
        client_transaction_version=version,
        epoch_is_a_fence=is_fence,
        latest_ms=latest_ms,
    )
    assert encode_value(metadata) == encode_any_value(metadata)
