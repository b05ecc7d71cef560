"""Rejected batches that the producer will send again.

Until a rejected batch is sent again, later batches of its producer are rejected. Otherwise the
producer's sequences would have a gap.
"""

from __future__ import annotations

from barnabas.protocol.records import HEADER_SIZE, producer_of
from barnabas.storage.producers.producer_state import ProducerStateManager


def add_refused(state: ProducerStateManager, batch: memoryview | bytearray) -> None:
    """Remember a rejected batch of a client, if it is a complete batch of an idempotent producer.

    It was rejected because the disk was full, or the broker is not the leader.

    After:  `check_overtaking` rejects later batches of the producer until this one is sent again.
    """
    if len(batch) >= HEADER_SIZE:
        state.add_refused(*producer_of(batch))


def check_overtaking(state: ProducerStateManager, batch: memoryview | bytearray) -> None:
    """Reject a client's batch while an earlier one of its producer has to be sent again.

    Raises: KafkaError OUT_OF_ORDER_SEQUENCE_NUMBER.
    """
    if state.refused and len(batch) >= HEADER_SIZE:
        state.check_overtaking(*producer_of(batch))
