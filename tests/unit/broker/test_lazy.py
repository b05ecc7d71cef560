"""Parts of the broker that are created at first use."""

from __future__ import annotations

from barnabas.broker.lazy import Lazy


def test_a_part_is_made_once_at_first_use() -> None:
    made: list[object] = []

    def make() -> object:
        made.append(object())
        return made[-1]

    part = Lazy(make)
    assert part.made is None and made == []
    assert part.get() is part.get() is part.made is made[0]
    assert len(made) == 1
