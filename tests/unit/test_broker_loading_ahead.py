"""Imports before the first requests. They take place in idle windows, for one API at a time, until
all are imported.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from barnabas.daemon.loading_ahead import FIRST_APIS, LoadingAhead
from barnabas.protocol.api import Api


class FakeLoop:
    """An event loop with one timer. When the timer fires, `now_s` becomes the time for which it was
    set.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self.timer: tuple[float, Callable[[], None]] | None = None

    def call_later(self, delay_s: float, call: Callable[[], None]) -> None:
        assert self.timer is None
        self.timer = (self.now_s + delay_s, call)

    def fire(self) -> None:
        """Advance the clock to the time of the timer, and call its function."""
        assert self.timer is not None
        self.now_s, call = self.timer
        self.timer = None
        call()


class FakeServer:
    """A server that keeps the work of its outbox. `imported` has the keys of the APIs whose modules
    have been imported.
    """

    def __init__(self) -> None:
        self.imported: list[int] = []
        self.is_closed = False
        self.work: list[Any] = []
        self.broker = SimpleNamespace(routes=self, outbox=SimpleNamespace(work=self.work))

    def waits_for_modules(self, api: Api) -> bool:
        return api.key not in self.imported

    def importer_of(self, api: Api) -> Callable[[], None]:
        return lambda: None

    def on_imported(self, api: Api) -> None:
        self.imported.append(api.key)

    def carry_out(self) -> None:
        assert len(self.work) <= 1, "one import at a time"

    def finish_work(self) -> None:
        self.work.pop().done(None, 0)


class Setting:
    def __init__(self) -> None:
        self.loop, self.server = FakeLoop(), FakeServer()
        self.cpu_s = 0.0
        self.ahead = LoadingAhead(self.server, self.loop, lambda: self.cpu_s)  # type: ignore[arg-type]

    def pass_window(self, used_s: float = 0.0) -> None:
        """Let a window pass, and then let the process use CPU time."""
        self.loop.fire()
        self.cpu_s += used_s


def test_all_are_imported_in_their_order_and_then_no_timer_is_set() -> None:
    s = Setting()
    for count in range(len(FIRST_APIS)):
        assert s.server.imported == list(FIRST_APIS[:count])
        s.loop.fire()
        assert s.loop.timer is None, "no window begins during an import"
        s.server.finish_work()
    s.loop.fire()
    assert (s.server.imported, s.loop.timer) == (list(FIRST_APIS), None)


def test_a_process_that_works_imports_nothing_ahead() -> None:
    s = Setting()
    s.cpu_s += 1
    for _ in range(3):
        s.pass_window(used_s=0.02)  # this CPU time makes the next window a busy one
    assert s.server.work == []
    s.pass_window()
    s.pass_window()
    assert len(s.server.work) == 1


def test_apis_that_requests_have_imported_are_skipped() -> None:
    s = Setting()
    s.server.imported += [18, 3, 0]
    s.loop.fire()
    s.server.finish_work()
    assert s.server.imported == [18, 3, 0, 1]


def test_a_closed_server_imports_nothing_more() -> None:
    s = Setting()
    s.loop.fire()
    s.server.finish_work()
    s.server.is_closed = True
    s.loop.fire()
    assert (s.server.work, s.loop.timer) == ([], None)
