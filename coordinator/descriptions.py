"""Makes the rows for the members of described groups in slices, since a group may have thousands of
members.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from itertools import islice
from typing import Any, Protocol, TypeVar

from barnabas.protocol.errors import Code

MEMBERS_AT_ONCE = 100  # the number of rows made in one slice, which takes one to three milliseconds

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
    for member in list(islice(members, most)):
        if rows and len(rows) % MEMBERS_AT_ONCE == 0:
            yield
        rows.append(row(member))
    return rows


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
        count += len(row.members)
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
