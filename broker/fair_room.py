"""A bounded room that several owners use, of which each may keep an equal share.

While there is room, an owner may use as much as it needs, also more than its share. When there is
no room, an owner that would stay within its share takes the place of the owner that holds most. So
one client cannot shut all others out, and nothing is reserved for clients that do not come. A share
is the limit divided by the number of the owners that hold something.
"""

from __future__ import annotations


class FairRoom:
    """How much of the room each owner holds. An owner is a client's principal, or its address if
    it is not authenticated.

    limit: the size of the room. total: how much of it all owners hold together.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.total = 0
        self._held: dict[str, int] = {}

    def has_room(self, more: int) -> bool:
        """Whether `more` fits into the room."""
        return self.total + more <= self.limit

    def held_by(self, owner: str) -> int:
        """How much an owner holds."""
        return self._held.get(owner, 0)

    def change(self, owner: str, by: int) -> None:
        """Record that an owner holds more, or less if `by` is negative."""
        self.total += by
        held = self._held.get(owner, 0) + by
        if held:
            self._held[owner] = held
        else:
            self._held.pop(owner, None)

    def clear(self) -> None:
        """Record that no owner holds anything."""
        self.total = 0
        self._held.clear()

    def who_yields(self, owner: str, more: int) -> str | None:
        """Which other owner has to give up some of its room, so that `owner` can have `more`. None
        if none has to, since `owner` would hold more than its share.

        If there is no room, and `owner` would stay within its share, then another owner holds more
        than its share.
        """
        share = self.limit // len(self._held.keys() | {owner})
        if self.held_by(owner) + more > share:
            return None
        most = max(self._held, key=self.held_by, default=owner)
        return most if most != owner and self.held_by(most) > share else None
