"""Partition directories without a topic id. A kill lost the id, or the broker that created the
directories wrote none.
"""

from __future__ import annotations

import errno
import uuid
from pathlib import Path

import pytest
from helpers.admin_host import NOW_MS, AdminHost, creatable
from helpers.disk_broker import DATA_DIR, DiskBroker
from sim.disk import Crash

from barnabas.graduation.survey import take_survey
from barnabas.storage.files.checkpoints import PARTITION_METADATA_NAME
from barnabas.storage.log.log import Log


@pytest.mark.parametrize("steps", range(8))
def test_after_a_kill_during_its_first_batch_a_log_has_its_topic_id(steps: int) -> None:
    b = DiskBroker()
    b.topic("t")
    b.disk.crash_in(steps)
    with pytest.raises(Crash):
        b.produce("t", (b"x",))
    b.kill()
    topic_id = b.broker.metadata.topics["t"].topic_id
    (log,) = b.broker.topics.logs_of("t")
    assert log.topic_id == topic_id
    b.produce("t", (b"a",))
    b.stop()
    b.broker.close_logs(b.now_ms)
    b.disk.kill()
    assert take_survey(b.disk, DATA_DIR).directories == ["t-0"]


def test_records_from_before_and_after_the_repair_of_the_id_survive_a_power_loss() -> None:
    """The flush journal has one record from before the repair and one from after it, each under the
    id that the log had at that time.
    """
    b = DiskBroker()
    b.topic("t", 2, flush_messages="1")
    b.produce("t", (b"a",))
    b.disk.kill()
    b.disk.unlink(f"{DATA_DIR}/t-0/{PARTITION_METADATA_NAME}")
    b.open()
    b.produce("t", (b"b",))
    b.lose_power()
    assert b.read("t") == [b"a", b"b"]


def test_records_in_the_journal_are_flushed_before_a_log_without_an_id_gets_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The disk was full at the previous start, so the log has no id. If a start assigned an id
    first, it would not find the log's records in the journal.
    """

    def refuse(log: Log, topic_id: uuid.UUID) -> None:
        raise OSError(errno.ENOSPC, "the disk is full")

    b = DiskBroker(barnabas_flush_journal_logs="1")
    b.topic("t", flush_messages="1")
    b.produce("t", (b"a",))
    b.disk.kill()
    b.disk.unlink(f"{DATA_DIR}/t-0/{PARTITION_METADATA_NAME}")
    with monkeypatch.context() as patch:
        patch.setattr(Log, "adopt_topic_id", refuse)
        b.open()
    b.produce("t", (b"b",))
    (log,) = b.broker.topics.logs_of("t")
    assert log.durability.recovery_point < log.durability.durable_offset, "b is in the journal"
    b.disk.kill()
    adopt = Log.adopt_topic_id

    def adopt_and_die(log: Log, topic_id: uuid.UUID) -> None:
        adopt(log, topic_id)
        raise Crash

    monkeypatch.setattr(Log, "adopt_topic_id", adopt_and_die)
    with pytest.raises(Crash):
        b.open()
    file = dict(b.disk.files())[f"{DATA_DIR}/t-0/{0:020d}.log"]
    assert file.synced == len(file.data)
    monkeypatch.undo()
    b.lose_power()
    assert b.read("t") == [b"a", b"b"]


def test_topics_without_stored_ids_each_get_their_own_id(tmp_path: Path) -> None:
    host = AdminHost(tmp_path)
    host.create(creatable("t", 2), creatable("u", 1))
    for name in ("t", "u"):
        for log in host.broker.topics.logs_of(name):
            log.files.make()
    host.broker.close_logs(NOW_MS)
    data = tmp_path / "data"
    (data / "barnabas-metadata.journal").unlink()
    for path in [*data.glob("*/partition.metadata"), *data.glob("*/segments.manifest")]:
        path.unlink()
    again = AdminHost(tmp_path)
    topics = again.broker.metadata.topics
    ids = {name: topics[name].topic_id for name in ("t", "u")}
    assert len({*ids.values(), uuid.UUID(int=0)}) == 3
    logs = [log for name in ids for log in again.broker.topics.logs_of(name)]
    assert [log.topic_id for log in logs] == [ids["t"], ids["t"], ids["u"]]
    again.close()
