"""Whether a batch that is to be written was written before, by what the group's offsets say.

A batch is committed in one transaction with `batch id + 1` as the group's offset on partition 0 of
each of its topics. A `CommitNote` is the metadata of that offset. Before a batch is published these
offsets are read, and one of the functions here decides. A micro-batch of a stream:

    the group has                               then
    nothing                                     written; in doubt where the checkpoint tells that
                                                the query published before
    lower numbers alone                         written
    this number, of the same plan               skipped: Spark repeats its last batch
    this number, of another plan                in doubt
    this number, for another topic              skipped where the plan is the same, else in doubt
    a higher number                             in doubt: Spark repeats no older batch

A batch write with `writeId`; what the group has for other topics than its own does not count:

    nothing, or lower numbers alone             written
    this number, of the same batch of a query   skipped
    this number, of another one                 in doubt
    a higher number                             skipped; in doubt within a query
    for some of the topics in its column        in doubt

A plan is what Spark wrote into `offsets/<batch id>` of the checkpoint before it began the batch. A
batch that is run again has the same plan, one of a copied or of an older checkpoint has another. In
doubt nothing is written, unless the option onUncertainBatch says what to do.

Nothing here talks to a broker or reads a file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from typing import NamedTuple

from barnabas.spark_connector.connection import ClientError

FAIL, WRITE_IT, SKIP_IT = "fail", "write", "skip"  # values of onUncertainBatch
COLUMN = "*"  # as target: each row's topic is in a column; no topic has this name
GO_ON = (
    "Then set onUncertainBatch=write to write it, or onUncertainBatch=skip to leave it out, and "
    "take the option out again afterwards."
)


class UncertainBatchError(ClientError):
    """A batch of which nobody can tell whether it was written before.

    The message says what to look at, and which option goes on.
    """


@dataclass(frozen=True)
class CommitNote:
    """What is committed beside a batch's number; an empty text stands for what is not known.

    target: a topic, or COLUMN. plan: a digest of what Spark wrote about the batch before it ran.
    origin: query and batch that a write of foreachBatch belongs to.
    """

    what: str = ""
    target: str = ""
    plan: str = ""
    origin: str = ""

    def to_text(self) -> str:
        """The note as the metadata of an offset."""
        return json.dumps(
            {name: value for name, value in asdict(self).items() if value}, ensure_ascii=False
        )


def parse_note(text: str | None) -> CommitNote:
    """The note that `CommitNote.to_text` made; of any other text, one with nothing but that."""
    try:
        values = json.loads(text or "")
        return CommitNote(
            **{name: str(values.get(name, "")) for name in CommitNote.__dataclass_fields__}
        )
    except (ValueError, AttributeError):
        return CommitNote(what=text or "")


class CommittedBatch(NamedTuple):
    """The last batch that a group has committed for one topic: its number + 1, and its note."""

    next_batch_id: int
    note: CommitNote


class Decision(NamedTuple):
    """Whether a batch's records are sent, and whether its number is committed.

    topics: where the number is committed beside the topics of the batch's records.
    """

    sends_records: bool
    commits_number: bool
    topics: frozenset[str] = frozenset()


WRITE = Decision(True, True)
SKIP = Decision(False, False)
Decide = Callable[[Mapping[str, CommittedBatch]], Decision]


def decide_by_number(batch_id: int) -> Decide:
    """The rule where numbers alone count: a batch is skipped once its number was reached.

    Batches of one group are numbered in the order in which they are written, wherever they go.
    """
    return lambda committed: (
        SKIP if any(each.next_batch_id > batch_id for each in committed.values()) else WRITE
    )


def decide_micro_batch(
    committed: Mapping[str, CommittedBatch],
    batch_id: int,
    note: CommitNote,
    topics: Collection[str],
    *,
    published_before: Callable[[], str],
    on_uncertain: str = FAIL,
) -> Decision:
    """Decide on a micro-batch of a streaming query.

    Takes:  committed, what the group has by topic; topics, those of the batch's records;
            published_before, called only where the group has nothing: when and how the query
            published, as its checkpoint tells, an empty text where it does not.
    Raises: UncertainBatchError.
    """
    if not committed:
        evidence = published_before()
        doubt = _doubt_of_forgotten(evidence) if evidence else ""
    else:
        last = max(committed.values(), key=lambda each: each.next_batch_id)
        if last.next_batch_id <= batch_id:
            return WRITE
        doubt = _doubt_of_number(last, batch_id, note)
    if doubt:
        return _in_doubt(note, doubt, topics, committed, batch_id, on_uncertain)
    return SKIP if committed else WRITE


def _doubt_of_forgotten(evidence: str) -> str:
    return (
        f"the checkpoint says that {evidence}, and the group knows of no batch any more: its "
        "offsets expired (offsets.retention.minutes of the "
        "broker is to be longer than a query may be down), the group or the topic was deleted, "
        "or kafka.bootstrap.servers or "
        "transactionalIdPrefix is another one. Look whether the last rows of the topic are "
        "those of this batch."
    )


def _doubt_of_number(last: CommittedBatch, batch_id: int, note: CommitNote) -> str:
    """Why a micro-batch of a committed number may be another one; empty where it is the same."""
    if last.next_batch_id > batch_id + 1:
        return (
            f"batch {last.next_batch_id - 1} of this query is committed already, and Spark repeats "
            "no batch but its last: the checkpoint is an "
            "older one that was restored, a copy with which another query goes on, or another "
            "driver runs this query. What came of this number "
            "then may be other rows. A new checkpoint makes a new query; give it startingOffsets."
        )
    if last.note.plan and note.plan and last.note.plan != note.plan:
        return (
            f"a batch of this number is committed already{_where(last.note)}, and it was planned "
            "another time, with "
            "other offsets: the checkpoint is an older one that was restored, or there is a copy "
            "of it with which "
            "another query goes on. A new checkpoint makes a new query; give it startingOffsets."
        )
    if not (last.note.plan and note.plan) and last.note.target and last.note.target != note.target:
        return (
            f"a batch of this number is committed already{_where(last.note)}, and this one goes "
            f"elsewhere{_where(note)}: "
            "either the option topic was changed, and these are the same rows, or the checkpoint "
            "is a copy of another "
            "query's, and they are not."
        )
    return ""


def decide_batch_write(
    committed: Mapping[str, CommittedBatch],
    batch_id: int,
    note: CommitNote,
    topics: Collection[str],
    *,
    on_uncertain: str = FAIL,
) -> Decision:
    """Decide on a batch write that has a writeId.

    The same name and number may be written once to each topic.
    Raises: UncertainBatchError.
    """
    same_topics = {
        topic: committed[topic]
        for topic in topics
        if topic in committed and committed[topic].next_batch_id > batch_id
    }
    doubt = ""
    if note.target == COLUMN and len(same_topics) < len(topics):
        doubt = _doubt_of_other_topics(committed, batch_id, topics)
    for topic, last in same_topics.items():
        doubt = doubt or _doubt_of_write(topic, last, batch_id, note)
    if doubt:
        return _in_doubt(note, doubt, topics, {}, batch_id, on_uncertain)
    return SKIP if same_topics else WRITE


def _doubt_of_other_topics(
    committed: Mapping[str, CommittedBatch], batch_id: int, topics: Collection[str]
) -> str:
    """Why a write by a column of topics may be another one than that of the same number."""
    others = [
        topic
        for topic, each in committed.items()
        if each.next_batch_id > batch_id and each.note.target in ("", COLUMN)
    ]
    if not others:
        return ""
    return (
        f"number {batch_id} of this writeId is committed for {_named(others)}, and now "
        f"rows go to {_named(topics)}: two writes whose rows "
        "have their topic in a column need a writeId each (or the option topic, which "
        "tells them apart)."
    )


def _doubt_of_write(topic: str, last: CommittedBatch, batch_id: int, note: CommitNote) -> str:
    """Why a write of a committed number may be another one; empty where it is the same."""
    if last.note.target and last.note.target != note.target:
        return (
            f"number {batch_id} of this writeId is committed for topic {topic!r} by another "
            "write, of which one has the option topic and one "
            "the column: give each a writeId of its own."
        )
    is_last = last.next_batch_id == batch_id + 1
    if note.origin and last.note.origin and (not is_last or last.note.origin != note.origin):
        return (
            f"number {last.next_batch_id - 1} of this writeId is committed for topic {topic!r} "
            f"by {last.note.origin}, "
            f"and this is {note.origin}. In foreachBatch give the batch's id as batchId and "
            "the query's id as writeId. "
            "If that is so, the checkpoint is an older one that was restored, or a copy."
        )
    return ""


def _in_doubt(
    note: CommitNote,
    doubt: str,
    topics: Collection[str],
    committed: Mapping[str, CommittedBatch],
    batch_id: int,
    on_uncertain: str,
) -> Decision:
    """The decision on a micro-batch in doubt, by the option onUncertainBatch.

    Numbers above this one are set back where the batch is written: the next one goes on from here.
    """
    higher = frozenset(
        topic for topic, each in committed.items() if each.next_batch_id > batch_id + 1
    )
    if on_uncertain == WRITE_IT:
        return Decision(True, True, higher)
    if on_uncertain == SKIP_IT:
        is_committed = any(each.next_batch_id > batch_id for each in committed.values())
        return SKIP if is_committed else Decision(False, True, frozenset(topics))
    raise UncertainBatchError(
        f"it is uncertain whether {note.what} was written before, so nothing is written: {doubt} "
        f"{GO_ON}"
    )


def _where(note: CommitNote) -> str:
    if not note.target:
        return ""
    return (
        ", to the topics in its column" if note.target == COLUMN else f", to topic {note.target!r}"
    )


def _named(topics: Collection[str]) -> str:
    return ("topic " if len(topics) == 1 else "topics ") + ", ".join(map(repr, sorted(topics)))
