"""The function calls that single requests take in the core, from the frame to the last flush."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from helpers.core_host import fetch, produce
from helpers.disk_broker import DiskBroker, Producer
from helpers.share_member import ACCEPT, SHARED, ShareMember, begin_group

from house.walks import PACKAGES, Walk

# What the rim calls.
EVENTS = ("on_frame", "on_flushed", "on_worked", "on_sent", "on_tick")


def report() -> Iterator[str]:
    """A line for each kind of request."""
    b = DiskBroker(**SHARED)
    for name in ("t", "queue"):
        b.topic(name)
    connection = b.connect()
    producer = Producer(b, "txn")
    begin_group(b, "g", "queue")
    member = ShareMember(b, "g", "m")
    taken: list[tuple[int, int, int]] = []

    def take() -> None:
        b.call(produce("queue"), 9)
        taken[:] = member.take("queue")

    def acknowledge() -> None:
        first, last, _ = taken[0]
        assert member.acknowledge("queue", (first, last, ACCEPT)) == 0

    def send() -> None:
        producer.send("t", 0, b"v")

    def end() -> None:
        assert producer.end(True) == 0

    def nothing() -> None:
        pass

    steps: tuple[tuple[str, Callable[[], None], Callable[[], object]], ...] = (
        ("Produce", nothing, lambda: b.call(produce("t"), 9, connection)),
        ("Fetch", nothing, lambda: b.call(fetch({"t": {0: 0}}), 12, connection)),
        ("EndTxn", send, end),
        ("ShareAcknowledge", take, acknowledge),
    )
    for name, prepare, step in steps:
        for _ in range(3):  # the first requests create files and caches
            prepare()
            walk = _walked(b, step)
        files = walk.files(*PACKAGES)
        yield (
            f"{name}: {files.total()} calls in {len(files)} files, {walk.changes} times the next "
            "call is in another file"
        )


def _walked(b: DiskBroker, step: Callable[[], object]) -> Walk:
    """The calls of the broker's part of a step. The client's part is not counted."""
    walk = Walk()

    def counted(event: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            with walk:
                return event(*arguments)

        return call

    for name in EVENTS:
        setattr(b.broker, name, counted(getattr(b.broker, name)))
    try:
        step()
    finally:
        for name in EVENTS:
            delattr(b.broker, name)
    return walk
