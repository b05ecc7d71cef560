"""Whether a batch that is to be written was written before: what the group's offsets say.

A batch is committed in one transaction with `batch id + 1` as the group's offset on partition 0 of
each of its topics. A `Note` is the metadata of that offset. Before a batch is published these
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
GO_ON = "Then set onUncertainBatch=write to write it, or onUncertainBatch=skip to leave it out, and take the option out again afterwards."


class UncertainBatchError(ClientError):
    """Nobody can tell whether the batch was written before: the message says what to look at, and
    which option goes on.
    """


@dataclass(frozen=True)
class Note:
    """What is committed beside a batch's number; an empty text is what is not known.

    target: a topic, or COLUMN. plan: a digest of what Spark wrote about the batch before it ran.
    origin: query and batch that a write of foreachBatch belongs to.
    """

    what: str = ""
    target: str = ""
    plan: str = ""
    origin: str = ""

    def to_text(self) -> str:
        """As the metadata of an offset."""
        return json.dumps(
            {name: value for name, value in asdict(self).items() if value}, ensure_ascii=False
        )


def note_of(text: str | None) -> Note:
    """What `Note.to_text` made; of any other text, a note that knows nothing but that."""
    try:
        values = json.loads(text or "")
        return Note(**{name: str(values.get(name, "")) for name in Note.__dataclass_fields__})
    except (ValueError, AttributeError):
        return Note(what=text or "")


class Committed(NamedTuple):
    """What a group has for one topic: the number after that of the last batch, and the note of that
    batch.
    """

    next_batch_id: int
    note: Note


class Decision(NamedTuple):
    """What is to be done with a batch.

    topics: where the number is committed beside the topics of the batch's records.
    """

    sends_records: bool
    commits_number: bool
    topics: frozenset[str] = frozenset()


WRITE = Decision(True, True)
SKIP = Decision(False, False)
Recognise = Callable[[Mapping[str, Committed]], Decision]


def by_number(batch_id: int) -> Recognise:
    """Batches of one group are numbered in the order in which they are written, wherever they go."""
    return lambda committed: (
        SKIP if any(each.next_batch_id > batch_id for each in committed.values()) else WRITE
    )


def recognise_micro_batch(
    committed: Mapping[str, Committed],
    batch_id: int,
    note: Note,
    topics: Collection[str],
    *,
    published_before: Callable[[], str],
    on_uncertain: str = FAIL,
) -> Decision:
    """What to do with a micro-batch of a streaming query.

    Takes:  committed, what the group has by topic; topics, those of the batch's records;
            published_before, asked only where the group has nothing: when and how the query
            published, as its checkpoint tells, an empty text where it does not.
    Raises: UncertainBatchError.
    """
    if not committed:
        told = published_before()
        doubt = (
            f"the checkpoint says that {told}, and the group knows of no batch any more: its "
            "offsets expired (offsets.retention.minutes of the "
            "broker is to be longer than a query may be down), the group or the topic was deleted, "
            "or kafka.bootstrap.servers or "
            "transactionalIdPrefix is another one. Look whether the last rows of the topic are "
            "those of this batch."
        )
        return _in_doubt(note, doubt, topics, committed, batch_id, on_uncertain) if told else WRITE
    last = max(committed.values(), key=lambda each: each.next_batch_id)
    if last.next_batch_id <= batch_id:
        return WRITE
    if last.next_batch_id > batch_id + 1:
        doubt = (
            f"batch {last.next_batch_id - 1} of this query is committed already, and Spark repeats "
            "no batch but its last: the checkpoint is an "
            "older one that was restored, a copy with which another query goes on, or another "
            "driver runs this query. What came of this number "
            "then may be other rows. A new checkpoint makes a new query; give it startingOffsets."
        )
        return _in_doubt(note, doubt, topics, committed, batch_id, on_uncertain)
    if last.note.plan and note.plan and last.note.plan != note.plan:
        doubt = (
            f"a batch of this number is committed already{_where(last.note)}, and it was planned "
            "another time, with "
            "other offsets: the checkpoint is an older one that was restored, or there is a copy "
            "of it with which "
            "another query goes on. A new checkpoint makes a new query; give it startingOffsets."
        )
        return _in_doubt(note, doubt, topics, committed, batch_id, on_uncertain)
    if not (last.note.plan and note.plan) and last.note.target and last.note.target != note.target:
        doubt = (
            f"a batch of this number is committed already{_where(last.note)}, and this one goes "
            f"elsewhere{_where(note)}: "
            "either the option topic was changed, and these are the same rows, or the checkpoint "
            "is a copy of another "
            "query's, and they are not."
        )
        return _in_doubt(note, doubt, topics, committed, batch_id, on_uncertain)
    return SKIP


def recognise_write(
    committed: Mapping[str, Committed],
    batch_id: int,
    note: Note,
    topics: Collection[str],
    *,
    on_uncertain: str = FAIL,
) -> Decision:
    """What to do with a batch write that has a writeId. The same name and number may be written
    once to each topic. Raises UncertainBatchError.
    """
    there = {
        topic: committed[topic]
        for topic in topics
        if topic in committed and committed[topic].next_batch_id > batch_id
    }
    if note.target == COLUMN:
        beside = [
            topic
            for topic, each in committed.items()
            if each.next_batch_id > batch_id and each.note.target in ("", COLUMN)
        ]
        if beside and len(there) < len(topics):
            doubt = (
                f"number {batch_id} of this writeId is committed for {_named(beside)}, and now "
                f"rows go to {_named(topics)}: two writes whose rows "
                "have their topic in a column need a writeId each (or the option topic, which "
                "tells them apart)."
            )
            return _in_doubt(note, doubt, topics, {}, batch_id, on_uncertain)
    if not there:
        return WRITE
    for topic, each in there.items():
        if each.note.target and each.note.target != note.target:
            doubt = (
                f"number {batch_id} of this writeId is committed for topic {topic!r} by another "
                "write, of which one has the option topic and one "
                "the column: give each a writeId of its own."
            )
            return _in_doubt(note, doubt, topics, {}, batch_id, on_uncertain)
        is_last = each.next_batch_id == batch_id + 1
        if note.origin and each.note.origin and (not is_last or each.note.origin != note.origin):
            doubt = (
                f"number {each.next_batch_id - 1} of this writeId is committed for topic {topic!r} "
                f"by {each.note.origin}, "
                f"and this is {note.origin}. In foreachBatch give the batch's id as batchId and "
                "the query's id as writeId. "
                "If that is so, the checkpoint is an older one that was restored, or a copy."
            )
            return _in_doubt(note, doubt, topics, {}, batch_id, on_uncertain)
    return SKIP


def _in_doubt(
    note: Note,
    doubt: str,
    topics: Collection[str],
    committed: Mapping[str, Committed],
    batch_id: int,
    on_uncertain: str,
) -> Decision:
    """As the option says. Numbers above this one are set back where the batch is written: the next
    one goes on from here.
    """
    higher = frozenset(
        topic for topic, each in committed.items() if each.next_batch_id > batch_id + 1
    )
    if on_uncertain == WRITE_IT:
        return Decision(True, True, higher)
    if on_uncertain == SKIP_IT:
        is_known = any(each.next_batch_id > batch_id for each in committed.values())
        return SKIP if is_known else Decision(False, True, frozenset(topics))
    raise UncertainBatchError(
        f"it is uncertain whether {note.what} was written before, so nothing is written: {doubt} "
        f"{GO_ON}"
    )


def _where(note: Note) -> str:
    if not note.target:
        return ""
    return (
        ", to the topics in its column" if note.target == COLUMN else f", to topic {note.target!r}"
    )


def _named(topics: Collection[str]) -> str:
    return ("topic " if len(topics) == 1 else "topics ") + ", ".join(map(repr, sorted(topics)))
