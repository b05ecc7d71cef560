"""The rehearsal of a fork server goes through a whole transaction, and leaves no file."""

from __future__ import annotations

from pathlib import Path

from barnabas.broker.rim.system_ids import SystemIds
from barnabas.broker.settings.config import BrokerConfig
from barnabas.daemon import rehearsal
from barnabas.daemon.opening import open_broker


def test_the_transaction_is_committed(tmp_path: Path) -> None:
    properties = {**rehearsal._PROPERTIES, "log.dirs": str(tmp_path)}
    broker = open_broker(BrokerConfig.from_properties(properties), SystemIds(), now_ms=0)
    rehearsal._send_requests(broker)
    ends = {
        topic: (log.last_stable_offset, log.log_end_offset)
        for (topic, _), log in broker.logs.logs.items()
    }
    assert ends["rehearsal"] == (2, 2)  # a record and a marker
    assert set(ends) == {"rehearsal", "__consumer_offsets", "__transaction_state"}
    broker.close_logs(0, lambda files: None)


def test_nothing_of_a_rehearsal_remains(tmp_path: Path) -> None:
    for _ in range(2):
        rehearsal.rehearse_test(str(tmp_path / "data"))
        rehearsal.rehearse_start(str(tmp_path / "data"))
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_made_ends_no_fork_server(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    rehearsal.rehearse_start(str(tmp_path / "file" / "data"))
