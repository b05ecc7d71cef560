"""Which connections may continue to receive when the memory for requests is full."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from barnabas.broker.rim.receive_turns import (
    LEAST_PROGRESS_BYTES,
    MOST_HOLDERS,
    SILENCE_S,
    ReceiveTurns,
)
from barnabas.protocol.framing import ReceiveMemory


class Timer:
    def __init__(self) -> None:
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Loop:
    """An event loop whose timers the test runs."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, Any]] = []
        self.timer = Timer()

    def call_later(self, delay_s: float, call: Any) -> Timer:
        self.calls.append((delay_s, call))
        return self.timer

    def fire(self) -> None:
        _, call = self.calls.pop(0)
        call()


class Receiver:
    def __init__(self, owner: str = "User:one") -> None:
        self.owner, self.held_bytes, self.awaits_rest = owner, 0, True
        self.resumed, self.reasons = 0, list[str]()

    def resume_receiving(self) -> None:
        self.resumed += 1

    def hang_up(self, reason: str) -> None:
        self.reasons.append(reason)


def full_memory() -> ReceiveMemory:
    memory = ReceiveMemory(1000)
    memory.take(1000)
    return memory


def turns_of(memory: ReceiveMemory, *receivers: Receiver) -> tuple[ReceiveTurns, Loop]:
    loop = Loop()
    return ReceiveTurns(memory, cast(asyncio.AbstractEventLoop, loop), lambda: receivers), loop


def test_all_connections_may_receive_while_memory_is_free() -> None:
    turns, _ = turns_of(ReceiveMemory(1000))
    assert turns.may_receive(Receiver())
    assert turns.may_receive(Receiver())
    assert turns.holders == {}


def test_with_full_memory_connections_of_a_principal_receive_one_after_another() -> None:
    turns, _ = turns_of(full_memory())
    first, second, third = Receiver(), Receiver(), Receiver()
    assert turns.may_receive(first)
    assert not turns.may_receive(second)
    assert not turns.may_receive(third)
    turns.on_released(first)
    assert (turns.has_turn(second), second.resumed, third.resumed) == (True, 1, 0)


def test_all_waiting_connections_resume_when_memory_is_free() -> None:
    memory = full_memory()
    turns, _ = turns_of(memory)
    first, second, third = Receiver(), Receiver(), Receiver()
    assert [turns.may_receive(one) for one in (first, second, third)] == [True, False, False]
    memory.held_bytes = 0
    turns.on_freed()
    assert (second.resumed, third.resumed) == (1, 1)


def test_with_full_memory_one_connection_of_each_principal_receives() -> None:
    """A principal that uses all the memory does not block other principals."""
    turns, _ = turns_of(full_memory())
    first, second, other = Receiver(), Receiver(), Receiver("User:other")
    assert [turns.may_receive(one) for one in (first, second, other)] == [True, False, True]
    turns.on_released(other)
    assert second.resumed == 0, "its own principal has a turn"
    turns.on_released(first)
    assert second.resumed == 1 and turns.has_turn(second)


def test_with_full_memory_a_limited_number_of_principals_receive_in_order() -> None:
    turns, _ = turns_of(full_memory())
    receivers = [Receiver(f"User:{number}") for number in range(MOST_HOLDERS + 2)]
    allowed = [turns.may_receive(one) for one in receivers]
    assert allowed == [True] * MOST_HOLDERS + [False] * 2
    turns.on_released(receivers[1])
    assert [one.resumed for one in receivers[-2:]] == [1, 0]
    assert turns.may_receive(receivers[-2])


def test_no_connection_receives_while_complete_requests_use_half_of_the_memory() -> None:
    memory = full_memory()
    memory.worked_bytes = 500
    turns, _ = turns_of(memory)
    first, other = Receiver(), Receiver("User:other")
    assert not turns.may_receive(first) and not turns.may_receive(other)
    memory.worked_bytes = 499
    turns.on_freed()
    assert (first.resumed, other.resumed) == (1, 1)


def test_silent_connections_with_half_a_request_are_closed() -> None:
    holder, half, other = Receiver(), Receiver(), Receiver("User:other")
    turns, loop = turns_of(full_memory(), holder, half, other)
    other.awaits_rest = False
    turns.may_receive(holder)
    turns.may_receive(Receiver())
    assert loop.calls[0][0] == SILENCE_S
    loop.fire()
    assert "queued.max.request.bytes=1000" in holder.reasons[0]
    assert len(half.reasons) == 1 and not other.reasons


def test_connections_with_enough_progress_are_not_closed() -> None:
    """While others wait, a connection must receive at least `LEAST_PROGRESS_BYTES` in each
    interval. One that now holds fewer bytes has completed a request and begun another.
    """
    slow, quick, next_one = Receiver(), Receiver(), Receiver()
    turns, loop = turns_of(full_memory(), slow, quick, next_one)
    turns.may_receive(slow)
    turns.may_receive(Receiver())
    for _ in range(3):
        slow.held_bytes += LEAST_PROGRESS_BYTES - 1
        quick.held_bytes += LEAST_PROGRESS_BYTES
        next_one.held_bytes -= 1
        loop.fire()
        assert not quick.reasons and not next_one.reasons, (
            "a connection that holds fewer bytes has begun another request"
        )
    assert len(slow.reasons) == 3
    turns.close()
    assert loop.timer.is_cancelled


def test_a_connection_that_began_later_is_closed_one_interval_later() -> None:
    receivers = [Receiver()]
    turns, loop = turns_of(full_memory(), *receivers)
    late = Receiver()
    turns._receivers = lambda: receivers
    turns.may_receive(Receiver())
    turns.may_receive(Receiver())
    receivers.append(late)
    loop.fire()
    assert len(receivers[0].reasons) == 1 and not late.reasons
    loop.fire()
    assert len(late.reasons) == 1


def test_without_waiting_connections_no_silent_one_is_closed() -> None:
    held, other = Receiver(), Receiver()
    turns, loop = turns_of(full_memory(), held)
    turns.may_receive(held)
    turns.may_receive(other)
    turns.on_released(other)
    loop.fire()
    assert not held.reasons and not loop.calls
