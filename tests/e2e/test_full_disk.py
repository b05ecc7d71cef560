"""A daemon that cannot write a byte for some time. Clients wait, and then continue without help.

Another process of the same user can lower and raise RLIMIT_FSIZE of the daemon. Writes beyond the
limit fail with EFBIG, as writes to a full disk fail with ENOSPC.
"""

from __future__ import annotations

import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from helpers.e2e_clients import (
    PATIENCE_S,
    committed_offset,
    consumer,
    create_topic,
    producer,
    send_all,
    transact,
    values_of,
)

from barnabas import LocalBroker

pytestmark = pytest.mark.e2e

FULL_S = 4.0


@contextmanager
def no_space(pid: int) -> Iterator[None]:
    """A context within which the process cannot write to files."""
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


class Background:
    """A call in a thread; `result` waits until it ends."""

    def __init__(self, call: Callable[[], object]) -> None:
        """Run the call in a thread."""
        self._errors: list[BaseException] = []

        def run() -> None:
            try:
                call()
            except BaseException as error:
                self._errors.append(error)

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def is_waiting(self, seconds: float) -> bool:
        """Whether the call is still running after `seconds`."""
        self._thread.join(seconds)
        return self._thread.is_alive()

    def result(self) -> None:
        """Wait until the call ends, and raise its error, if it has one."""
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "it still waits"
        assert self._errors == []


def test_clients_wait_while_the_disk_is_full_and_then_continue(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "data") as broker:
        servers = broker.bootstrap_servers
        topic, group = create_topic(servers, "full"), "readers"
        client = producer(servers, transactional_id="txn")
        client.init_transactions(PATIENCE_S)
        transact(client, topic, [b"0"])
        send_all(servers, topic, [b"1"])
        reader = consumer(servers, group)
        reader.subscribe([topic])
        assert reader.poll(PATIENCE_S) is not None

        client.begin_transaction()
        client.produce(topic, b"2")
        client.flush(PATIENCE_S)
        with no_space(broker.pid):
            commit = Background(lambda: client.commit_transaction(PATIENCE_S))
            sent = Background(lambda: send_all(servers, topic, [b"3"]))
            begun = Background(
                lambda: producer(servers, transactional_id="another").init_transactions(PATIENCE_S)
            )
            assert commit.is_waiting(FULL_S)
            assert sent.is_waiting(0) and begun.is_waiting(0)
            assert values_of(servers, topic) == [b"0", b"1"], "readers are served"
        for one in (commit, sent, begun):
            one.result()
        assert sorted(filter(None, values_of(servers, topic))) == [b"0", b"1", b"2", b"3"]
        transact(client, topic, [b"4"])
        reader.commit(asynchronous=False)
        reader.close()
        assert committed_offset(servers, group, topic) >= 1
        assert not [line for line in broker.output if "Traceback" in line or " CRITICAL " in line]
