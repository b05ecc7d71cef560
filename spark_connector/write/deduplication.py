"""Decides whether a batch was written before, by the committed offsets of the query's group.

A batch is committed in one transaction with `batch id + 1` as the group's offset on partition 0 of
each of its topics. A `CommitNote` is the metadata of that offset. Before a batch is published these
offsets are read, and one of the functions here decides.

A **micro-batch** has a number N and a plan: what Spark wrote into `offsets/N` of the checkpoint
before it began the batch. A repeated batch has the same plan. A batch of a copied or older
checkpoint has another plan. The published batches are recorded in three places, and each of these
records can be lost:

    the group's note    the last batch that is committed. The broker drops it when nothing was
                        committed for offsets.retention.minutes.
    the begun note      the last batch whose publishing began, whether it was committed or not, as
                        an offset of a second group with a retention without end. Written before
                        each transaction, without a transaction.
    the trail           a file in the checkpoint: the last batch that this checkpoint began, and the
                        one before it. It is copied and restored with the checkpoint.

A note is *own* if the trail has its number and plan, or `offsets/<number>` has its plan, since the
batch was then run with this checkpoint. Otherwise it is *foreign*: the batch was run with another
checkpoint.

    the group's note        its plan          then, for a batch N with rows
    N                       the same          skipped: Spark repeats its last batch
    N                       another           in doubt
    above N                 any               in doubt: Spark repeats no older batch
    below N                 own               written
    below N                 foreign           in doubt: another checkpoint continued
    N, announced only       the same          written: the attempt did not commit
    none                    the begun note decides:
    N                       any               in doubt: it is unknown whether that attempt committed
    above N                 any               in doubt
    below N                 foreign           in doubt
    below N                 own               announced, then written: no number above it was begun
    none                    the trail has one in doubt: both groups, or their topic, are gone
    none                    no trail          announced, then written: the query's first batch
    any                     any               in doubt if it would be written, but the trail says
                                              that N + 1 was begun

An *announcement* commits N itself as the group's offset, with the batch's plan, before the begun
note has N. If the begun note has N and the group has no offset, the group's offset must therefore
have expired. An attempt that is killed and soon repeated is never in doubt.

A batch without rows is checked if it is a driver's first batch, and writes no offsets. It is
accepted if a batch with rows would be written or skipped. Otherwise it is in doubt as well.

A **batch write** with `writeId`; the group's offsets for topics that the write does not have are
ignored:

    nothing, or only lower numbers              written
    this number, of the same batch of a query   skipped
    this number, of another one                 in doubt
    a higher number                             skipped; in doubt within a query
    for some of the topics in its column        in doubt

A **batch write in foreachBatch** is a part of a micro-batch: its batchId is N, and the option
checkpointLocation leads to the plan. After the last two rows above it is decided by the first
table, with the notes of the writes to its own target (`GroupState.of_target`), and with a trail of
its own.

A batch in doubt is not written, unless the option onUncertainBatch allows it.

This module sends no requests and reads no files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import NamedTuple

from barnabas.client.errors import ClientError

FAIL, WRITE_IT, SKIP_IT = "fail", "write", "skip"  # values of onUncertainBatch
ANNOUNCED = "announced"  # a note's state: the batch is about to be published
# a note's target if a column contains the topic of each row; no topic can have this name
COLUMN = "*"
GO_ON = (
    "Then set onUncertainBatch=write to write it, or onUncertainBatch=skip to skip it, and "
    "remove the option afterwards."
)


class UncertainBatchError(ClientError):
    """A batch may or may not have been written before.

    The message says what to check, and with which option the query continues.
    """


@dataclass(frozen=True)
class CommitNote:
    """The metadata that are committed with a batch's number. A field is empty if it is unknown.

    target: a topic, or COLUMN. plan: a digest of the file that Spark wrote before the batch ran.
    origin: the query and the batch to which a write of foreachBatch belongs. state: ANNOUNCED, or
    empty. parts: the list of the transactions that tasks wrote (task_transactions.py), or the
    beginning of the list.
    """

    what: str = ""
    target: str = ""
    plan: str = ""
    origin: str = ""
    state: str = ""
    parts: str = ""

    def to_text(self) -> str:
        """Convert the note to the text that becomes the metadata of an offset."""
        return json.dumps(
            {name: value for name, value in asdict(self).items() if value}, ensure_ascii=False
        )


def parse_note(text: str | None) -> CommitNote:
    """Parse a text made by `CommitNote.to_text`.

    For any other text, make a note that contains the text in `what`.
    """
    try:
        values = json.loads(text or "")
        return CommitNote(
            **{name: str(values.get(name, "")) for name in CommitNote.__dataclass_fields__}
        )
    except (ValueError, AttributeError):
        return CommitNote(what=text or "")


class PlannedBatch(NamedTuple):
    """A micro-batch: its number, and the digest of its plan. The digest is empty if unknown."""

    batch_id: int
    plan: str


class CommittedBatch(NamedTuple):
    """The offset that a group has committed for one topic, and its note.

    more: the metadata of the topic's following partitions, which continue the note.
    """

    next_batch_id: int
    note: CommitNote
    more: tuple[str, ...] = ()

    @property
    def is_committed(self) -> bool:
        """Whether the batch of the note is committed. If not, the batch is only announced."""
        return self.note.state != ANNOUNCED

    @property
    def planned(self) -> PlannedBatch:
        """The batch that the note describes."""
        return PlannedBatch(self.next_batch_id - self.is_committed, self.note.plan)


class GroupState(NamedTuple):
    """What the brokers have stored about a query, by topic: the group's offsets and the begun
    notes.
    """

    committed: Mapping[str, CommittedBatch] = MappingProxyType({})
    begun: Mapping[str, CommittedBatch] = MappingProxyType({})

    @property
    def last(self) -> CommittedBatch | None:
        """The last of the group's offsets. If two have the same number, a commit counts as later
        than an announcement.
        """
        return max(self.committed.values(), key=_order, default=None)

    def of_target(self, target: str) -> GroupState:
        """The notes of the writes to one target: a topic, or COLUMN. One writeId may have writes
        to several targets.
        """

        def own(batches: Mapping[str, CommittedBatch]) -> dict[str, CommittedBatch]:
            return {
                topic: each
                for topic, each in batches.items()
                if each.note.target in ("", target) and target in (topic, COLUMN)
            }

        return GroupState(own(self.committed), own(self.begun))

    @property
    def last_begun(self) -> PlannedBatch | None:
        """The last batch whose publishing began, according to the brokers."""
        last = max(self.begun.values(), key=_order, default=None)
        return None if last is None else last.planned


def _order(each: CommittedBatch) -> tuple[int, bool]:
    return each.planned.batch_id, each.is_committed


@dataclass(frozen=True)
class Trail:
    """A checkpoint's record of the batches that were published with it.

    begun: the last batch whose publishing began. after: the group's last batch before that one.
    run: the run of the query (Spark's id) that last compared the checkpoint with the groups.
    is_complete: False if the trail was written by an earlier release, which recorded only the first
    batch.
    """

    group: str = ""
    run: str = ""
    begun: PlannedBatch | None = None
    after: PlannedBatch | None = None
    is_complete: bool = True

    def has_begun(self, batch_id: int) -> bool:
        """Whether the publishing of this batch, or of a later one, has begun."""
        return self.is_complete and self.begun is not None and self.begun.batch_id >= batch_id


@dataclass(frozen=True)
class Lineage:
    """The batches that were run with a checkpoint, according to its trail and its remaining plans.

    plan_of: a function that returns the plan in `offsets/<number>`, or an empty text if Spark has
    deleted that file.
    """

    trail: Trail
    plan_of: Callable[[int], str]

    def is_foreign(self, batch: PlannedBatch) -> bool:
        """Whether this batch was not run with this checkpoint, even if another one with its number
        was.

        A note without a plan is considered own. So is a plan that cannot be compared because an
        earlier release kept no trail.
        """
        if not batch.plan:
            return False
        if batch in (self.trail.begun, self.trail.after):
            return False
        plan = self.plan_of(batch.batch_id)
        return plan != batch.plan if plan else self.trail.is_complete


class Decision(NamedTuple):
    """Whether a batch's records are sent, and whether its number is committed.

    topics: the topics on which the number is committed in addition to those of the batch's records.
    announces: whether the number is announced first, after which the decision is made again.
    was_committed: whether the batch is skipped because it was committed, or because the user
    requested this.
    """

    sends_records: bool
    commits_number: bool
    topics: frozenset[str] = frozenset()
    announces: bool = False
    was_committed: bool = False


WRITE = Decision(True, True)
SKIP = Decision(False, False, was_committed=True)
PASS = Decision(False, False)  # there is nothing to write
Decide = Callable[[GroupState], Decision]


def decide_by_number(batch_id: int) -> Decide:
    """Make the rule that compares only numbers: a batch is skipped once its number has been
    reached.

    The batches of one group are numbered in the order in which they are written, whatever their
    topics.
    """
    return lambda state: (
        SKIP if any(each.next_batch_id > batch_id for each in state.committed.values()) else WRITE
    )


def decide_micro_batch(
    state: GroupState,
    batch_id: int,
    note: CommitNote,
    topics: Collection[str],
    *,
    lineage: Lineage,
    on_uncertain: str = FAIL,
) -> Decision:
    """Decide on a micro-batch of a streaming query, by the table in the module's docstring.

    Takes:  topics, the topics of the batch's records; empty for a batch without rows.
    Raises: UncertainBatchError.
    """
    batch, last = PlannedBatch(batch_id, note.plan), state.last
    if last is None:
        if state.last_begun == batch and not topics:
            # The earlier attempt has committed the whole batch or nothing, and this attempt has no
            # rows to write.
            return PASS
        doubt = _doubt_of_forgotten(state.last_begun, batch, lineage)
    else:
        doubt = _doubt_of_last(last, batch, note, lineage)
        if not doubt and last.is_committed and last.planned.batch_id == batch_id:
            return SKIP
    if not doubt and lineage.trail.has_begun(batch_id + 1):
        doubt = _doubt_of_trail(lineage.trail)
    if doubt:
        return _in_doubt(note, doubt, topics, state, batch_id, on_uncertain)
    if not topics:
        return PASS
    return Decision(True, True, frozenset(topics), announces=last is None)


def _doubt_of_trail(trail: Trail) -> str:
    """Return the reason for doubt if the checkpoint records a later batch than the one that Spark
    begins now.
    """
    assert trail.begun is not None
    return (
        f"the checkpoint says that batch {trail.begun.batch_id} of this query was begun already: "
        "another driver runs this query, or an older copy of the checkpoint was restored in part. "
        f"{NEW_CHECKPOINT}"
    )


NEW_CHECKPOINT = "A new checkpoint makes a new query; give it startingOffsets."


def _doubt_of_last(
    last: CommittedBatch, batch: PlannedBatch, note: CommitNote, lineage: Lineage
) -> str:
    """Return why a micro-batch may have been written already, by the group's last batch."""
    batch_id, plan = last.planned
    word = "committed" if last.is_committed else "announced"
    if batch_id > batch.batch_id:
        return (
            f"batch {batch_id} of this query is {word} already, and Spark repeats only its last "
            "batch: the checkpoint is an older one that was restored, or a copy "
            "that another query continues, or another driver runs this query. The rows of this "
            f"number may have been others then. {NEW_CHECKPOINT}"
        )
    if batch_id < batch.batch_id:
        return _doubt_of_foreign(last.planned, word, _where(last.note), lineage)
    if plan and batch.plan and plan != batch.plan:
        return (
            f"a batch of this number is {word} already{_where(last.note)}, and was planned with "
            "other offsets: the checkpoint is an older one that was restored, or another query "
            f"continues a copy of it. {NEW_CHECKPOINT}"
        )
    if not (plan and batch.plan) and last.note.target and last.note.target != note.target:
        return (
            f"a batch of this number is {word} already{_where(last.note)}, and this one has "
            f"another target{_where(note)}: either the option topic was changed, and these are "
            "the same rows, or the checkpoint is a copy of another query's, and they are not."
        )
    return ""


def _doubt_of_foreign(last: PlannedBatch, word: str, where: str, lineage: Lineage) -> str:
    """Return why a batch is in doubt if the group's earlier batch was run with another checkpoint,
    or an empty text if it was not.

    Takes:  word, "committed" or "announced"; where, the topics of the earlier batch.
    """
    if not lineage.is_foreign(last):
        return ""
    return (
        f"batch {last.batch_id} of this query is {word} already{where}, and was planned "
        "differently from this checkpoint's: the checkpoint is an older one that was restored, "
        "or another query continues a copy of it. Rows of this batch may be among those of "
        f"batch {last.batch_id}. {NEW_CHECKPOINT}"
    )


def _doubt_of_forgotten(begun: PlannedBatch | None, batch: PlannedBatch, lineage: Lineage) -> str:
    """Return why a micro-batch may have been written already, if the group has no offsets."""
    trail = lineage.trail
    if begun is None:
        if trail.begun is None:
            return ""
        return (
            "the checkpoint says that this query published batches up to "
            f"{trail.begun.batch_id}, as group {trail.group!r}, and the brokers have no batch "
            "now: the group or the topic was deleted, the offsets expired "
            "(offsets.retention.minutes of the broker), or kafka.bootstrap.servers or "
            "transactionalIdPrefix was changed. Check whether the last rows of the topic are "
            "those of this batch."
        )
    if begun.batch_id < batch.batch_id:
        if not trail.has_begun(batch.batch_id):
            return _doubt_of_foreign(begun, "begun", "", lineage)
    elif begun.batch_id > batch.batch_id or (
        begun.plan and batch.plan and begun.plan != batch.plan
    ):
        return (
            f"batch {begun.batch_id} of this query was begun already, and planned differently: "
            "the checkpoint is an older one that was restored, or another query continues a "
            f"copy of it. {NEW_CHECKPOINT}"
        )
    return (
        "an earlier attempt to publish this batch was interrupted, and whether it was committed "
        "is unknown: the group's offsets expired meanwhile (set offsets.retention.minutes of "
        "the broker longer than a query may be down), or the group was deleted. Check whether "
        "the last rows of the topic are those of this batch."
    )


def decide_batch_write(
    state: GroupState,
    batch_id: int,
    note: CommitNote,
    topics: Collection[str],
    *,
    on_uncertain: str = FAIL,
) -> Decision:
    """Decide on a batch write that has a writeId.

    The same writeId and number may be written once to each topic.

    Raises: UncertainBatchError.
    """
    same_topics = _with_number(state.committed, batch_id, topics)
    doubt = _doubt_of_name(state.committed, batch_id, note, topics)
    if doubt:
        return _in_doubt(note, doubt, topics, GroupState(), batch_id, on_uncertain)
    if same_topics:
        return SKIP
    return WRITE if topics else PASS


def decide_write_of_micro_batch(
    state: GroupState,
    batch_id: int,
    note: CommitNote,
    topics: Collection[str],
    *,
    lineage: Lineage,
    on_uncertain: str = FAIL,
) -> Decision:
    """Decide on a batch write in foreachBatch, as on the micro-batch whose number and plan it has.

    Takes:  topics, the topics of the write's records; empty for a write without rows.
    Raises: UncertainBatchError.
    """
    own = state.of_target(note.target)
    doubt = _doubt_of_name(state.committed, batch_id, note, topics)
    if doubt:
        return _in_doubt(note, doubt, topics, own, batch_id, on_uncertain)
    return decide_micro_batch(
        own, batch_id, note, topics, lineage=lineage, on_uncertain=on_uncertain
    )


def _with_number(
    committed: Mapping[str, CommittedBatch], batch_id: int, topics: Collection[str]
) -> dict[str, CommittedBatch]:
    """The offsets of those topics for which this number, or a higher one, is committed."""
    return {
        topic: committed[topic]
        for topic in topics
        if topic in committed and committed[topic].next_batch_id > batch_id
    }


def _doubt_of_name(
    committed: Mapping[str, CommittedBatch],
    batch_id: int,
    note: CommitNote,
    topics: Collection[str],
) -> str:
    """Return why a batch write's name and number may be those of a different write."""
    same_topics = _with_number(committed, batch_id, topics)
    doubt = ""
    if note.target == COLUMN and len(same_topics) < len(topics):
        doubt = _doubt_of_other_topics(committed, batch_id, topics)
    for topic, last in same_topics.items():
        doubt = doubt or _doubt_of_write(topic, last, batch_id, note)
    return doubt


def _doubt_of_other_topics(
    committed: Mapping[str, CommittedBatch], batch_id: int, topics: Collection[str]
) -> str:
    """Return why a write whose topics are in a column may differ from the write with the same
    number.
    """
    others = [
        topic
        for topic, each in committed.items()
        if each.next_batch_id > batch_id and each.note.target in ("", COLUMN)
    ]
    if not others:
        return ""
    return (
        f"number {batch_id} of this writeId is committed for {_named(others)}, and this write "
        f"has rows for {_named(topics)}: two writes whose rows have their topic in a column "
        "need a writeId each (or the option topic, which distinguishes them)."
    )


def _doubt_of_write(topic: str, last: CommittedBatch, batch_id: int, note: CommitNote) -> str:
    """Return why a write with a committed number may be a different write, or an empty text if it
    is the same.
    """
    if last.note.target and last.note.target != note.target:
        return (
            f"number {batch_id} of this writeId is committed for topic {topic!r} by another "
            "write: one has the option topic, the other the column topic: give each its own "
            "writeId."
        )
    is_last = last.next_batch_id == batch_id + 1
    if note.origin and last.note.origin and (not is_last or last.note.origin != note.origin):
        return (
            f"number {last.next_batch_id - 1} of this writeId is committed for topic {topic!r} "
            f"by {last.note.origin}, "
            f"and this is {note.origin}. In foreachBatch give the batch's id as batchId and "
            "the query's id as writeId. If that is so, the checkpoint is an older one that was "
            "restored, or another query continues a copy of it."
        )
    return ""


def _in_doubt(
    note: CommitNote,
    doubt: str,
    topics: Collection[str],
    state: GroupState,
    batch_id: int,
    on_uncertain: str,
) -> Decision:
    """Decide on a batch in doubt, as the option onUncertainBatch says.

    The group gets this batch's note, so the next batch is not in doubt. There is one exception: if
    the group's number is higher and the batch is skipped, the number is not lowered. The batches up
    to this number are then in doubt too.
    """
    numbers = {
        topic: each.planned.batch_id
        for batches in (state.begun, state.committed)
        for topic, each in batches.items()
    }
    higher = frozenset(topic for topic, number in numbers.items() if number > batch_id)
    noted = frozenset(topics) | higher or frozenset(numbers)
    if on_uncertain == WRITE_IT:
        return Decision(bool(topics), bool(noted), noted, announces=bool(topics) and not numbers)
    if on_uncertain == SKIP_IT:
        return SKIP if higher or not noted else Decision(False, True, noted)
    raise UncertainBatchError(
        f"it is uncertain whether {note.what} was written before, so nothing is written: {doubt} "
        f"{GO_ON}"
    )


def _where(note: CommitNote) -> str:
    """The target of a batch, as words for a message."""
    if not note.target:
        return ""
    return (
        ", to the topics in its column" if note.target == COLUMN else f", to topic {note.target!r}"
    )


def _named(topics: Collection[str]) -> str:
    return ("topic " if len(topics) == 1 else "topics ") + ", ".join(map(repr, sorted(topics)))
