"""The cost of the console: clients share snapshots, requests are not counted while there are no
clients, and the number of clients is limited. Its responses are tested with a browser
(e2e/test_console.py).
"""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.core_host import CoreHost

from barnabas.broker.observation.error_counts import ErrorCounts
from barnabas.broker.seams import snapshots
from barnabas.broker.seams.snapshots import Snapshots
from barnabas.broker.seams.state import BrokerState
from barnabas.console.rim import endpoint, source, watch
from barnabas.console.rim.endpoint import Console

METADATA_FRAME = memoryview(b"\0\3" + bytes(20))


def until(is_so: Any) -> None:
    """Wait until the condition holds; fail after 10 seconds."""
    deadline = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Watched:
    """A console with a stand-in server, its own broker core, and an event loop in a thread."""

    def __init__(self, directory: Path) -> None:
        """Create a console for a broker core with a topic of three partitions. A stand-in server
        records frames, and its event loop runs in a thread, as in the real broker.
        """
        self.host = CoreHost(directory)
        self.host.create("orders", 3)
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.frames: list[int] = []
        self.server: Any = SimpleNamespace(
            broker=self.host.broker,
            loop=self.loop,
            on_frame=lambda connection_id, frame, now_ms: self.frames.append(connection_id),
            now_ms=self.host.event_ms,
            steady_ms=lambda: 0,  # time does not pass, so only one sample is taken
            addresses=[("127.0.0.1", 9092)],
            state=BrokerState(self.host.broker),
            snapshots=Snapshots(self.host.broker),
            nodes=SimpleNamespace(ports=SimpleNamespace(listeners=[])),
        )
        self.on_frame = self.server.on_frame
        sock = socket.socket()
        sock.bind(("127.0.0.1", 0))
        sock.listen(16)
        self.console = Console(self.server, sock)
        until(lambda: self.console._source.sampler.history.times)
        self.port = int(self.console.url.rpartition(":")[2])

    def ask(self, path: str = "/api/overview") -> tuple[int, Any]:
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        client.request("GET", path)
        answer = client.getresponse()
        body = json.loads(answer.read())
        client.close()
        return answer.status, body

    def close(self) -> None:
        self.console.close()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()
        self.host.close()


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    watched = Watched(tmp_path)
    yield watched
    watched.close()


def test_concurrent_clients_share_one_snapshot(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []
    real = snapshots.look_at_partitions

    def counted(broker: Any) -> Any:
        looks.append(threading.current_thread())
        return real(broker)

    monkeypatch.setattr(snapshots, "look_at_partitions", counted)
    monkeypatch.setattr(source, "FRESH_S", 60.0)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: watched.ask(), range(16)))
    assert {status for status, _ in answers} == {200}
    assert {len(body["topics"]["rows"][0]["strips"]) for _, body in answers} == {3}
    assert looks == [watched.thread], "once, and in the loop's thread"


def look_of(watched: Watched) -> Any:
    return watched.console._source.look(source.Viewer())


def test_an_expensive_snapshot_is_reused_for_longer(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot stays fresh for SHARE_OF_TIME times as long as it took to create, so that creating
    snapshots uses a bounded share of the time. With 10,000, the second request gets the snapshot of
    the first.
    """
    monkeypatch.setattr(source, "FRESH_S", 0.0)
    monkeypatch.setattr(source, "SHARE_OF_TIME", 10_000)
    first, second = watched.ask()[1], watched.ask()[1]
    assert look_of(watched) is look_of(watched)
    assert first["now_ms"] == second["now_ms"]
    monkeypatch.setattr(source, "SHARE_OF_TIME", 0)
    watched.console._source._fresh_until = 0.0
    assert look_of(watched) is not look_of(watched)


def test_requests_are_counted_only_while_a_client_uses_the_console(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "WATCHED_S", 0.3)
    server = watched.server
    assert server.broker.requests.errors is None
    watched.ask("/api/requests")
    assert server.on_frame is not watched.on_frame
    server.on_frame(7, METADATA_FRAME, 0)
    server.broker.requests.errors.count(3, 3)
    body = watched.ask("/api/requests")[1]
    assert (body["apis"], body["requests"]["requests"]) == ({"Metadata": 1}, 1)
    assert body["errors"] == [
        {"api": "Metadata", "error": "UNKNOWN_TOPIC_OR_PARTITION", "count": 1}
    ]
    until(lambda: server.on_frame is watched.on_frame)
    assert server.broker.requests.errors is None
    assert watched.frames == [7], "the frame was passed to the broker's own handler"


def test_the_console_keeps_error_counts_that_another_component_installed(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another component, for example the metrics endpoint, already counts the errors. The console
    shows these counts, and does not remove them when its last client has disconnected.
    """
    monkeypatch.setattr(watch, "WATCHED_S", 0.1)
    counts = watched.server.broker.requests.errors = ErrorCounts()
    counts.count(3, 3)
    assert watched.ask()[1]["requests"]["errors"] == 1
    until(lambda: watched.server.on_frame is watched.on_frame)
    assert watched.server.broker.requests.errors is counts


def test_a_request_gets_503_while_too_many_others_run(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test holds the lock that each request takes, as other requests would."""
    monkeypatch.setattr(endpoint, "BUSY_AFTER_S", 0.05)
    with watched.console._turn:
        status, body = watched.ask()
    assert status == 503 and "Too many" in body["error"]
    assert watched.ask()[0] == 200


def test_pages_and_searches_do_not_wait_for_each_other(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record may keep a search busy for seconds, and other viewers read on."""
    monkeypatch.setattr(endpoint, "BUSY_AFTER_S", 0.05)
    searches = watched.console._searches
    for _ in range(endpoint.SEARCHES_AT_ONCE):
        searches.acquire()
    assert watched.ask()[0] == 200
    assert watched.ask("/api/search?topic=orders")[0] == 503
    for _ in range(endpoint.SEARCHES_AT_ONCE):
        searches.release()
    search = watched.console._records.search
    is_in_search = []

    def searching(viewer: Any, query: Any) -> Any:
        is_in_search.append(watched.console._turn.locked())
        return search(viewer, query)

    monkeypatch.setitem(watched.console._searching, "/api/search", searching)
    assert watched.ask("/api/search?topic=orders")[0] == 200
    assert is_in_search == [False]


def test_a_damaged_index_of_a_partition_hides_that_partition_alone(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = source.take_window

    def damaged(log: Any, *arguments: Any) -> Any:
        if log.partition == 1:
            raise log.segments.active.batches.corrupt(0, "no batch begins there")
        return real(log, *arguments)

    monkeypatch.setattr(source, "take_window", damaged)
    strips = watched.ask()[1]["topics"]["rows"][0]["strips"]
    assert [strip["partition"] for strip in strips] == [0, 2]
    status, body = watched.ask("/api/partition?topic=orders&partition=1")
    assert (status, body["strip"]) == (200, None)
