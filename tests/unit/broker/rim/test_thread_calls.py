"""Calls that threads pass to the event loop. They run in order, none is lost, and none runs after
the end.
"""

from __future__ import annotations

import asyncio
import threading

import pytest

from barnabas.broker.rim.thread_calls import ThreadCalls

THREADS, CALLS = 4, 500


@pytest.fixture(params=["eventfd", "asyncio"])
def without_eventfd(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the test with and without eventfd, which some systems lack."""
    if request.param == "asyncio":
        monkeypatch.delattr("os.eventfd", raising=False)


@pytest.mark.usefixtures("without_eventfd")
def test_calls_of_all_threads_run_and_each_threads_calls_in_order() -> None:
    heard: list[tuple[int, int]] = []

    async def run() -> None:
        calls = ThreadCalls(asyncio.get_running_loop())
        done = asyncio.Event()

        def hear(thread: int, number: int) -> None:
            assert threading.current_thread() is threading.main_thread()
            heard.append((thread, number))
            if len(heard) == THREADS * CALLS:
                done.set()

        def ask(thread: int) -> None:
            for number in range(CALLS):
                calls.call(hear, thread, number)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        await asyncio.wait_for(done.wait(), 60)
        for thread in threads:
            thread.join()
        calls.close()

    asyncio.run(run())
    for thread in range(THREADS):
        assert [number for of, number in heard if of == thread] == list(range(CALLS))


@pytest.mark.usefixtures("without_eventfd")
def test_an_error_in_a_call_does_not_prevent_later_calls() -> None:
    heard: list[int] = []
    errors: list[object] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: errors.append(context["exception"]))
        calls = ThreadCalls(loop)
        done = asyncio.Event()

        def hear(number: int) -> None:
            if number == 1:
                raise ValueError(number)
            heard.append(number)
            if number == 2:
                done.set()

        thread = threading.Thread(target=lambda: [calls.call(hear, n) for n in range(3)])
        thread.start()
        thread.join()
        await asyncio.wait_for(done.wait(), 60)
        calls.close()

    asyncio.run(run())
    assert heard == [0, 2]
    assert [str(error) for error in errors] == ["1"]


def test_pending_calls_do_not_run_after_close() -> None:
    heard: list[int] = []

    async def run() -> None:
        calls = ThreadCalls(asyncio.get_running_loop())
        calls.call(heard.append, 1)
        calls.close()
        calls.close()
        for _ in range(3):
            await asyncio.sleep(0)

    asyncio.run(run())
    assert heard == []
