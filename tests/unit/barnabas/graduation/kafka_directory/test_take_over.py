"""Directories that another broker wrote become topics. The tests for reading Kafka's metadata log
are in test_kafka_metadata.py.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from helpers.admin_host import NOW_MS, AdminHost, creatable


def test_directories_without_a_journal_become_topics(tmp_path: Path) -> None:
    """The journal and the directory of the middle partition are missing. The highest directory
    determines the number of partitions.
    """
    host = AdminHost(tmp_path)
    host.create(creatable("t", 3))
    for log in host.broker.topics.logs_of("t"):
        log.files.make()
    topic_id = host.broker.metadata.topics["t"].topic_id
    host.broker.close_logs(NOW_MS)
    (tmp_path / "data" / "barnabas-metadata.journal").unlink()
    shutil.rmtree(tmp_path / "data" / "t-1")
    again = AdminHost(tmp_path)
    topic = again.broker.metadata.topics["t"]
    assert (topic.partition_count, topic.topic_id) == (3, topic_id)
    assert len(again.broker.topics.logs_of("t")) == 3
    again.close()
