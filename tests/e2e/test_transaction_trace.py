"""At debug level the log shows a transaction from its first request to its last marker."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from helpers.e2e_wire import Wire
from helpers.loop_watchdog import daemon_command
from sim import wire

from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.protocol.records import NewRecord, encode_batch

pytestmark = pytest.mark.e2e


class Transaction:
    """A transaction with a record in t-0 and an offset of the group g."""

    def __init__(self, client: Wire, name: str) -> None:
        """Start a session of the transactional id."""
        self.client, self.name = client, name
        request = InitProducerIdRequest(
            transactional_id=name, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )
        session = client.call(wire.request(request, 4))
        self.producer_id, self.producer_epoch = session.producer_id, session.producer_epoch
        self.names = {
            "transactional_id": name,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
        }

    def write(self) -> None:
        """Add t-0 to the transaction, and write one record."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
        )
        self.client.call(wire.request(request, 3))
        batch = encode_batch(
            [NewRecord(None, b"v", 0)],
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=0,
            transactional=True,
        )
        self.client.call(wire.produce(self.name, "t", 0, batch))

    def write_offset(self) -> None:
        """Commit an offset of the group "g" in the transaction."""
        self.client.call(wire.request(AddOffsetsToTxnRequest(group_id="g", **self.names), 3))
        row = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=1, committed_metadata=""
        )
        request = TxnOffsetCommitRequest(
            group_id="g",
            topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[row])],
            **self.names,
        )
        self.client.call(wire.request(request, 2))

    def end(self, *, commit: bool) -> None:
        self.client.call(wire.request(EndTxnRequest(committed=commit, **self.names), 3))


def run(directory: Path, *options: str) -> tuple[list[dict[str, Any]], Transaction]:
    """Return the broker's log while transactions with the ids `one` and `other` were running, and
    the transaction of `one`.
    """
    daemon = subprocess.Popen(
        [
            *daemon_command(), "start", "--port", "0",
            "--data-dir", str(directory / "data"), "--log-format", "json", *options,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        one = run_transactions(daemon)
        daemon.send_signal(signal.SIGTERM)
        _, errors = daemon.communicate(timeout=60)
    finally:
        daemon.kill()
        daemon.communicate()
    assert daemon.returncode == 0, errors
    return [json.loads(text) for text in errors.splitlines()], one


def run_transactions(daemon: subprocess.Popen[str]) -> Transaction:
    """Run a transaction of each id, and return that of `one`, which is complete."""
    assert daemon.stdout is not None
    match = re.search(r"listens on 127\.0\.0\.1:(\d+)", daemon.stdout.readline())
    assert match is not None
    with Wire(int(match[1])) as client:
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        client.call(wire.request(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5))
        one, other = Transaction(client, "one"), Transaction(client, "other")
        one.write()
        other.write()
        one.write_offset()
        other.end(commit=False)
        one.end(commit=True)
        client.call(  # waits until the last transaction is complete
            wire.request(
                InitProducerIdRequest(
                    transactional_id="one", transaction_timeout_ms=60_000, producer_id=-1,
                    producer_epoch=-1,
                ),
                4,
            )
        )  # fmt: skip
    return one


def test_the_log_shows_each_step_of_a_transaction_with_its_ids(tmp_path: Path) -> None:
    """Exactly the steps of `one` are logged with its transactional id or producer id, although
    another transaction is in progress at the same time.
    """
    lines, one = run(tmp_path, "--log-level", "barnabas.transactions=DEBUG")
    followed = [
        line
        for line in lines
        if line.get("transactional_id") == "one" or line.get("producer_id") == one.producer_id
    ]
    reported = [
        (line.get("state"), line.get("topic"), line.get("partition"), line.get("offset"))
        for line in followed
    ]
    offsets = next(line["partition"] for line in followed if "pending" in line["message"])
    assert reported[0] == ("Empty", None, None, None)
    expected = [
        ("Empty", None, None, None),
        ("Ongoing", None, None, None),
        (None, "t", 0, 0),
        ("Ongoing", None, None, None),
        (None, "__consumer_offsets", offsets, 0),
        ("PrepareCommit", None, None, None),
        (None, "t", 0, 3),
        (None, "__consumer_offsets", offsets, 1),
        ("CompleteCommit", None, None, None),
    ]
    steps = [row for row in reported if row[0] is None or not str(row[0]).isupper()]
    assert steps[: len(expected)] == expected
    markers = [line for line in followed if "marker" in line["message"]]
    assert ["COMMIT" in line["message"] for line in markers] == [True, True]
    assert all(line["producer_epoch"] == one.producer_epoch for line in markers)
    assert "COMMIT leads from OPEN" in " ".join(line["message"] for line in followed)


def test_at_info_nothing_of_it_is_told(tmp_path: Path) -> None:
    lines, _ = run(tmp_path)
    assert [line for line in lines if line["logger"] == "barnabas.transactions"] == []
