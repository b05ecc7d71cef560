"""Finds every path by which a broker still refers to an object that should be gone.

The search visits all objects that are reachable from the broker, so it finds an entry that was not
removed wherever it is stored.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

OURS = "barnabas."
MOST_OBJECTS = 400_000
# These tables may keep entries of closed connections, since their size is bounded. `audited` has
# the authorizations of each connection that were already audited, until an ACL changes.
# `_latest_connections` has the last connection of each transactional id, by which a late request is
# recognised.
KEPT_OF_CONNECTIONS = ("audited", "_latest_connections")
# This cache of decoded offset keys may keep entries of deleted topics, since its size is bounded.
KEPT_OF_TOPICS = ("_topic_partitions",)


def places_of(
    root: Any, is_wanted: Callable[[Any], bool], left_out: tuple[str, ...] = ()
) -> list[str]:
    """The paths from the root to the wanted objects.

    Takes: left_out, the names of attributes that are not followed.
    """
    found = []
    seen = {id(root)}
    waiting: deque[tuple[str, Any]] = deque([("", root)])
    count = 0
    while waiting:
        way, holder = waiting.popleft()
        count += 1
        assert count < MOST_OBJECTS, f"a walk without an end: {way}"
        for name, value in parts_of(holder):
            step = way + name
            if name.lstrip(".") in left_out:
                continue
            if is_wanted(value):
                found.append(step)
            if id(value) not in seen and is_to_enter(value):
                seen.add(id(value))
                waiting.append((step, value))
    return found


def is_to_enter(value: Any) -> bool:
    """Whether the search enters this value, which must be a container, a closure, or an object of
    this project.
    """
    if isinstance(
        value, dict | list | tuple | set | frozenset | deque | partial | types.MethodType
    ):
        return True
    if isinstance(value, types.FunctionType):
        return bool(value.__closure__) and value.__module__.startswith(OURS)
    return type(value).__module__.startswith(OURS) and not isinstance(value, type)


def parts_of(holder: Any) -> Iterator[tuple[str, Any]]:
    """The values to which a value refers directly, each with its step in the path."""
    if isinstance(holder, dict):
        for key, value in list(holder.items()):
            yield f"[{_short(key)}] (key)", key
            yield f"[{_short(key)}]", value
    if isinstance(holder, list | tuple | set | frozenset | deque):
        names = getattr(holder, "_fields", None)
        for number, value in enumerate(list(holder)):
            yield f".{names[number]}" if names else f"[{number}]", value
    elif isinstance(holder, partial):
        yield "(function)", holder.func
        yield "(arguments)", holder.args
        yield "(named)", holder.keywords
    elif isinstance(holder, types.MethodType):
        yield f".{holder.__name__}.self", holder.__self__
    elif isinstance(holder, types.FunctionType):
        for name, cell in zip(holder.__code__.co_freevars, holder.__closure__ or (), strict=True):
            try:
                yield f".<{holder.__name__}>.{name}", cell.cell_contents
            except ValueError:  # the cell is empty
                continue
    else:
        for name, value in list(getattr(holder, "__dict__", {}).items()):
            yield f".{name}", value
        for kind in type(holder).__mro__:
            for name in getattr(kind, "__slots__", ()):
                if hasattr(holder, name):
                    yield f".{name}", getattr(holder, name)


def _short(key: Any) -> str:
    text = repr(key)
    return text if len(text) < 40 else f"{text[:36]}..."
