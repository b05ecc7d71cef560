"""Makes the rows for the members of described groups in slices, since a group may have thousands of
members, and a member thousands of topics. A response that took more than one slice is encoded by
the worker.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from itertools import islice
from typing import Any, Protocol, TypeVar

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.message import Message

MEMBERS_AT_ONCE = 100  # the number of rows made in one slice, which takes one to three milliseconds
ELEMENTS_PER_MEMBER = 20  # so many names, partitions or tasks count as one row more

Member = TypeVar("Member")
Row = TypeVar("Row")
Made = TypeVar("Made")
InSlices = Generator[None, int, Made]


class DescribedGroup(Protocol):
    """A group's row in a response."""

    error_code: int
    authorized_operations: int
    members: list[Any]


Group = TypeVar("Group", bound=DescribedGroup)


def members_in_slices(
    members: Iterable[Member], row: Callable[[Member], Row], most: int | None = None
) -> InSlices[list[Row]]:
    """Make the rows of some members, in slices. Every row shows the member as it was at the first
    slice.

    Takes:  members, immutable values; most, the maximum number of rows, None for all.
    """
    rows: list[Row] = []
    count = 0
    for member in list(islice(members, most)):
        if count >= MEMBERS_AT_ONCE:
            yield
            count = 0
        rows.append(row(member))
        count += 1 + _elements_of(rows[-1]) // ELEMENTS_PER_MEMBER
    return rows


def _elements_of(row: Any) -> int:
    """The number of elements in the lists of a row of a response, at any depth."""
    count = 0
    for name in type(row).__slots__:
        value = getattr(row, name)
        if type(value) is list:
            count += len(value)
            if value and isinstance(value[0], Message):
                count += sum(map(_elements_of, value))
        elif isinstance(value, Message):
            count += _elements_of(value)
    return count


def groups_in_slices(
    group_ids: Iterable[str],
    describe: Callable[[str], InSlices[Group]],
    operations: int | None,
) -> InSlices[list[Group]]:
    """Make the rows of all groups that a request names, in slices.

    Takes:  operations, the operations that the client may do, if it requests them.
    """
    yield
    described, count = [], 0
    for group_id in group_ids:
        if count >= MEMBERS_AT_ONCE:
            yield
            count = 0
        row = yield from describe(group_id)
        count += 1 + _elements_of(row) // ELEMENTS_PER_MEMBER
        if operations is not None and row.error_code == Code.NONE:
            row.authorized_operations = operations
        described.append(row)
    return described


def at_once(work: InSlices[Made]) -> Made:
    """Run all slices of the work in this call. Gives: its result."""
    try:
        while True:
            next(work)
    except StopIteration as end:
        made: Made = end.value
        return made
