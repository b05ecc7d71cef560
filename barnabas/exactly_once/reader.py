"""The consumer: which partitions are assigned, from where they are read, and going back.

A partition that is assigned stays paused until its owner opens it at an offset: first its offset
has to be stable and its state restored. The reader gives out each record at most once between two
rewinds, and none of a partition that is not assigned and open.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from barnabas.exactly_once.errors import (
    AbortRequired,
    ConfigurationError,
    ExactlyOnceError,
    OffsetsDeletedError,
    StuckError,
    UnreleasedError,
    ending_error,
    fatal_event,
    is_passing,
)
from barnabas.exactly_once.records import Place, Record

_LOG = logging.getLogger(__name__)
_SEEK_S = 10.0
_JOIN_S = 90.0
_JOIN_AGAIN_S = 1.0
_COMMITTED_S = 1.0
# What waits at most when more is read ahead: as much as is decoded in 6 to 8 ms (a commit takes
# 10); more would leave the processor's caches before it is handled. At once: what takes below 1 ms.
_AHEAD = 2000
_AHEAD_BYTES = 16 * 1024 * 1024
_AHEAD_AT_ONCE = 100
_NOT_YET = (
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    # of OffsetFetch with a member (KIP-848): it joins again, or its next heartbeat has the epoch
    KafkaError.UNKNOWN_MEMBER_ID,
    110,  # FENCED_MEMBER_EPOCH
    113,  # STALE_MEMBER_EPOCH
)


class Reader:
    """The consumer of an instance.

    Takes:  cooperative, whether assignments change by increments. on_assigned is called with new
            partitions. on_revoked is called with partitions before they go, and with whether they
            are lost; it may commit. Both are called inside of `poll`.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        topics: Sequence[str],
        *,
        cooperative: bool,
        on_assigned: Callable[[list[Place]], None],
        on_revoked: Callable[[list[Place], bool], None],
    ) -> None:
        self._topics = list(topics)
        self._cooperative = cooperative
        self._on_assigned, self._on_revoked = on_assigned, on_revoked
        self._next: dict[Place, int | None] = {}  # None: assigned, and not open
        self._waiting: deque[Record] = deque()
        self._ahead_bytes: int | None = None  # known only while records are read ahead
        self._changed = False
        self._failure: BaseException | None = None
        self.at_end: set[Place] = set()
        self._settings = dict(settings)
        self._consumer = self._new_consumer()
        self._joins_until = math.inf
        self._has_joined = False

    def _new_consumer(self) -> Any:
        """Raises: ConfigurationError."""
        try:
            return Consumer(self._settings)
        except (KafkaException, ValueError) as error:
            raise ConfigurationError(f"the consumer's settings: {error}") from error

    def subscribe(self) -> None:
        """Join the group. Raises: ExactlyOnceError."""
        self._joins_until = time.monotonic() + _JOIN_S
        self._has_joined = False
        self._subscribe()

    def _subscribe(self) -> None:
        try:
            self._consumer.subscribe(
                self._topics, on_assign=self._assign, on_revoke=self._revoke, on_lost=self._lose
            )
        except KafkaException as error:
            raise ending_error(error.args[0], "subscribing") from error

    # --- assignments

    @property
    def assigned(self) -> set[Place]:
        return set(self._next)

    def is_open(self, place: Place) -> bool:
        return self._next.get(place) is not None

    def _assign(self, consumer: Any, partitions: list[Any]) -> None:
        """Take the partitions, paused: `open` says where to begin. Each has a logical offset, since
        the client must not ask for the group's; `open` replaces it.
        """
        self._changed = self._has_joined = True
        places = [Place(each.topic, each.partition) for each in partitions]
        first = [TopicPartition(*place, OFFSET_BEGINNING) for place in places]
        with self._keeping_failures():
            if self._cooperative:
                consumer.incremental_assign(first)
            else:
                consumer.assign(first)
            if first:
                consumer.pause(first)
            self._next |= dict.fromkeys(places)
            self._on_assigned(places)

    def _revoke(self, consumer: Any, partitions: list[Any]) -> None:
        self._let_go(consumer, partitions, lost=False)

    def _lose(self, consumer: Any, partitions: list[Any]) -> None:
        self._let_go(consumer, partitions, lost=True)

    def _let_go(self, consumer: Any, partitions: list[Any], *, lost: bool) -> None:
        self._changed = True
        places = [Place(each.topic, each.partition) for each in partitions]
        with self._keeping_failures():
            self._on_revoked(places, lost)
        self.forget(places)
        with self._keeping_failures():
            if self._cooperative:
                consumer.incremental_unassign(partitions)
            else:
                consumer.unassign()

    def forget(self, places: Iterable[Place]) -> None:
        """Give out no record of these partitions any more."""
        gone = set(places)
        for place in gone:
            self._next.pop(place, None)
            self.at_end.discard(place)
        self._drop_waiting(gone)

    def _drop_waiting(self, places: Container[Place]) -> None:
        """Give out no waiting record of these partitions."""
        self._waiting = deque(each for each in self._waiting if each.place not in places)
        self._ahead_bytes = None

    def _keeping_failures(self) -> _Keeping:
        """Keep an exception of a callback until the client's call has returned."""
        return _Keeping(self)

    def keep_failure(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error

    def close_partitions(self, places: Iterable[Place]) -> None:
        """Pause partitions that stay assigned, until they are opened again."""
        chosen = [place for place in places if self.is_open(place)]
        self._drop_waiting(set(chosen))
        for place in chosen:
            self._next[place] = None
        if chosen:
            self._consumer.pause([TopicPartition(*place) for place in chosen])

    def open(self, place: Place, offset: int | None, *, latest: bool = False) -> None:
        """Read a partition from this offset.

        Takes:  offset, None to begin at the log's start, or at its end if `latest`.
        """
        self._seek(place, offset if offset is not None else OFFSET_END if latest else -2)
        self._next[place] = 0 if offset is None else offset
        self._consumer.resume([TopicPartition(*place)])

    def _seek(self, place: Place, offset: int) -> None:
        """Set the position. A partition that was just assigned may not be ready for it."""
        deadline = time.monotonic() + _SEEK_S
        while True:
            try:
                self._consumer.seek(TopicPartition(*place, offset))
                self.at_end.discard(place)
                return
            except KafkaException as error:
                if time.monotonic() > deadline:
                    raise StuckError(f"{place} cannot be read from {offset}: {error}") from error
                time.sleep(0.01)

    def rewind(self, begins: Mapping[Place, int]) -> None:
        """Read these partitions again from these offsets, as far as they are assigned and open."""
        chosen = {place: offset for place, offset in begins.items() if self.is_open(place)}
        self._drop_waiting(chosen)
        for place, offset in chosen.items():
            self._seek(place, offset)
            self._next[place] = offset

    # --- records

    def poll(self, count: int, timeout_s: float) -> bool:
        """Serve the group, and fetch up to `count` records if none is waiting.

        Gives:  whether records wait.
        Raises: ExactlyOnceError; what the callbacks raised.
        """
        self._ahead_bytes = None
        if self._waiting:
            self._fetch(1, 0)
        else:
            self._fetch(count, timeout_s)
        return bool(self._waiting)

    def read_ahead(self) -> bool:
        """Serve the group, and fetch some records more than those that wait, without waiting.

        Gives:  whether more may come. Not if none came, or so many wait that no more are fetched.
        Raises: ExactlyOnceError; what the callbacks raised.
        """
        if self._ahead_bytes is None:
            self._ahead_bytes = sum(
                len(each.key or b"") + len(each.value or b"") for each in self._waiting
            )
        is_full = len(self._waiting) >= _AHEAD or self._ahead_bytes >= _AHEAD_BYTES
        messages = self._fetch(1 if is_full else _AHEAD_AT_ONCE, 0)
        if self._ahead_bytes is not None:
            self._ahead_bytes += sum(len(each.key() or b"") + len(each) for each in messages)
        return len(messages) > 1

    def _fetch(self, count: int, timeout_s: float) -> list[Any]:
        """Serve the group, and fetch up to `count` records."""
        self._changed = False
        messages: list[Any] = self._consumer.consume(count, timeout_s)
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if self._changed:
            self._discard(messages)
        else:
            for message in messages:
                self._take(message)
        return messages

    def _discard(self, messages: Iterable[Any]) -> None:
        """Assignments changed while these were fetched: it is not certain to which assignment they
        belong. Read them again.
        """
        again = set()
        for message in messages:
            if message.error() is None:
                again.add(Place(message.topic(), message.partition()))
            else:
                self._take(message)
        for place in again:
            after = self._next.get(place)
            if after is not None:
                lowest = min(
                    (
                        each.offset()
                        for each in messages
                        if (each.topic(), each.partition()) == place and each.offset() >= after
                    ),
                    default=None,
                )
                if lowest is not None:
                    self._seek(place, lowest)

    def _take(self, message: Any) -> None:
        """Add a message to the waiting records, if its partition is open and it is the next one.

        Raises: ExactlyOnceError if it reports an error that does not pass.
        """
        error = message.error()
        if error is not None:
            self._on_error(error, message)
            return
        place = Place(message.topic(), message.partition())
        offset = message.offset()
        following = self._next.get(place)
        if following is None or offset < following:
            return
        self._next[place] = offset + 1
        _, time_ms = message.timestamp()
        self._waiting.append(
            Record(
                place.topic,
                place.partition,
                offset,
                message.key(),
                message.value(),
                message.headers() or (),
                time_ms,
            )
        )
        if self.at_end:
            self.at_end.discard(place)

    def _on_error(self, error: Any, message: Any) -> None:
        code = error.code()
        place = Place(message.topic() or "", message.partition())
        if code == KafkaError._PARTITION_EOF:
            if self.is_open(place):
                self.at_end.add(place)
        elif code == KafkaError._AUTO_OFFSET_RESET:
            if self.is_open(place):
                raise OffsetsDeletedError(
                    f"{place} has no offset {self._next[place]} any more: records were deleted "
                    "before they were read, or the topic was created again. To continue without "
                    "them, stop all instances and set the group's offset (kafka-consumer-groups "
                    "--reset-offsets, or `barnabas groups`)"
                )
        elif code == KafkaError._MAX_POLL_EXCEEDED:
            _LOG.warning("the handler took longer than max.poll.interval.ms: partitions are lost")
        elif code == KafkaError._FATAL:
            self._on_fatal(fatal_event(error))
        elif error.fatal() or code in (
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            KafkaError.GROUP_AUTHORIZATION_FAILED,
            KafkaError._AUTHENTICATION,
            KafkaError.UNKNOWN_TOPIC_OR_PART,
        ):
            raise ending_error(error, "reading")
        else:
            _LOG.warning("reading: %s", error.str())

    def _on_fatal(self, failure: ExactlyOnceError) -> None:
        """The consumer has ended. If it could not join since a predecessor's session has not
        expired, join again with a new one.

        Raises: the failure, if there is no use in that.
        """
        if (
            not isinstance(failure, UnreleasedError)
            or self._has_joined
            or time.monotonic() > self._joins_until
        ):
            raise failure
        _LOG.warning("waiting: %s", failure)
        self._consumer.close()
        time.sleep(_JOIN_AGAIN_S)
        self._consumer = self._new_consumer()
        self._subscribe()

    def next_record(self) -> Record | None:
        """The next waiting record."""
        return self._waiting.popleft() if self._waiting else None

    def put_back(self, records: Sequence[Record]) -> None:
        """Let records wait again that `next_record` gave, before all others. Those of a partition
        are in order.
        """
        self._waiting.extendleft(reversed(records))
        self._ahead_bytes = None

    def all_read(self) -> bool:
        """Whether partitions are assigned, and all of them are at their ends."""
        return bool(self._next) and not self._waiting and self.at_end >= set(self._next)

    # --- offsets

    def committed(self, places: Iterable[Place]) -> dict[Place, int | None] | None:
        """The group's offsets, None for a partition without one.

        Gives:  None if they are not stable yet: a transaction that contains one of them has not
                ended (KIP-447), or the coordinator does not answer now.
        Raises: ExactlyOnceError.
        """
        asked = [TopicPartition(*place) for place in places]
        try:
            found = self._consumer.committed(asked, _COMMITTED_S)
        except KafkaException as failure:
            error = failure.args[0]
            if error.code() in _NOT_YET or is_passing(error):
                return None
            raise ending_error(error, "asking for the group's offsets") from failure
        for each in found:
            if each.error is not None:
                if each.error.code() in _NOT_YET or is_passing(each.error):
                    return None
                raise ending_error(each.error, "asking for the group's offsets")
        return {
            Place(each.topic, each.partition): each.offset if each.offset >= 0 else None
            for each in found
        }

    def membership(self) -> Any:
        """The group's metadata for the transaction.

        Raises: AbortRequired if the group has dropped this member. Its metadata have then no
                generation and no member, and the broker would not check them.
        """
        metadata = self._consumer.consumer_group_metadata()
        # The id is asked for after the metadata: a member gets a new one only inside of `poll`.
        if not self._consumer.memberid():
            raise AbortRequired("the group has dropped this member", "lost")
        return metadata

    def close(self) -> None:
        """Leave the group (a static member stays in it). on_revoked is called for what is
        assigned.

        Raises: what the callbacks raised.
        """
        try:
            self._consumer.close()
        except KafkaException as error:
            _LOG.warning("closing the consumer: %s", error)
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure


class _Keeping:
    """Keeps the exception of a block in the reader."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if error is None:
            return False
        self._reader.keep_failure(error)
        return True
