"""Who goes on receiving when all connections hold as much as they may."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from barnabas.broker.receive_turns import SILENCE_S, ReceiveTurns
from barnabas.protocol.framing import ReceiveMemory


class Timer:
    def __init__(self) -> None:
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Loop:
    """A loop of timers that run when the test says so."""

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
    def __init__(self) -> None:
        self.resumed, self.reasons = 0, list[str]()

    def resume_receiving(self) -> None:
        self.resumed += 1

    def hang_up(self, reason: str) -> None:
        self.reasons.append(reason)


def full_memory() -> ReceiveMemory:
    memory = ReceiveMemory(1000)
    memory.take(1000)
    return memory


def turns_of(memory: ReceiveMemory) -> tuple[ReceiveTurns, Loop]:
    loop = Loop()
    return ReceiveTurns(memory, cast(asyncio.AbstractEventLoop, loop)), loop


def test_nobody_waits_while_there_is_memory() -> None:
    turns, _ = turns_of(ReceiveMemory(1000))
    assert turns.may_receive(Receiver())
    assert turns.may_receive(Receiver())
    assert turns.holder is None


def test_one_at_a_time_beyond_the_bound_in_the_order_in_which_they_came() -> None:
    turns, _ = turns_of(full_memory())
    first, second, third = Receiver(), Receiver(), Receiver()
    assert turns.may_receive(first)
    assert not turns.may_receive(second)
    assert not turns.may_receive(third)
    turns.on_released(first)
    assert (turns.holder, second.resumed, third.resumed) == (second, 1, 0)


def test_all_go_on_when_there_is_memory_again() -> None:
    memory = full_memory()
    turns, _ = turns_of(memory)
    first, second, third = Receiver(), Receiver(), Receiver()
    assert [turns.may_receive(one) for one in (first, second, third)] == [True, False, False]
    memory.held_bytes = 0
    turns.on_freed()
    assert (second.resumed, third.resumed) == (1, 1)


def test_a_holder_that_sends_nothing_is_hung_up_on() -> None:
    turns, loop = turns_of(full_memory())
    holder, other = Receiver(), Receiver()
    turns.may_receive(holder)
    turns.may_receive(other)
    assert loop.calls[0][0] == SILENCE_S
    loop.fire()
    assert not holder.reasons
    loop.fire()
    assert "queued.max.request.bytes=1000" in holder.reasons[0]


def test_a_holder_that_goes_on_keeps_the_turn() -> None:
    turns, loop = turns_of(full_memory())
    holder, other = Receiver(), Receiver()
    turns.may_receive(holder)
    turns.may_receive(other)
    for _ in range(3):
        loop.fire()
        assert turns.may_receive(holder)
    assert not holder.reasons
    turns.close()
    assert loop.timer.is_cancelled
