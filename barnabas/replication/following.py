"""The standby's side of the replication link, without IO: it gets the leader's bytes and yields the
bytes to send back.

The file `barnabas-standby` in the directory, called the note, contains the state of the copy in one
line. While it says `catching up`, no broker starts on the copy. If it says `following`, the copy
contains everything that the leader had done up to some moment. While a standby connects and
compares, it changes neither its copy nor the note. Both change when the first operation arrives.

A note with `following` also says which responses of the leader waited for this copy
(`AnswersWait`). This decides how a broker starts on the copy:

    answers waited      started manually             started by a claim of the lease
    never               as after a power loss        as after a power loss
    while in sync       as after a power loss        as after a kill: the claimer is in the set
    always              as after a kill              as after a kill
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator
from typing import Any

from barnabas.replication.catch_up import PIECES_AT_ONCE, take_inventory
from barnabas.replication.leadership import Holding
from barnabas.replication.lease_record import NodeAddresses
from barnabas.replication.lost_partitions import LostPartitions
from barnabas.replication.operations import Replica
from barnabas.replication.wire import (
    MOST_BYTES,
    NONCE_BYTES,
    VERSION,
    AnswersWait,
    Frames,
    WireError,
    frame,
    proof,
    unpack,
)
from barnabas.storage.disk import Disk
from barnabas.storage.files.checkpoints import (
    CLEAN_SHUTDOWN_NAME,
    META_PROPERTIES_NAME,
    STANDBY_NOTE_NAME,
    CorruptCheckpoint,
    decode_properties,
)
from barnabas.storage.log.log_directory import LogDirectoryError
from barnabas.storage.opening.last_run import LastRun, RunNote

PARTS_IN_A_FRAME = 64
MOST_LETTERS = 200
CATCHING_UP, FOLLOWING = "catching up", "following"
NOWHERE = NodeAddresses("", {})


class StandbyNote:
    """The note (file `barnabas-standby`) in a standby's directory."""

    def __init__(self, disk: Disk, data_dir: str) -> None:
        self._disk, self._data_dir = disk, data_dir
        self._path = f"{data_dir}/{STANDBY_NOTE_NAME}"

    def read(self) -> str | None:
        """The state CATCHING_UP or FOLLOWING; None if the directory is not a standby's."""
        try:
            text = self._disk.read(self._path).decode(errors="replace").strip()
        except FileNotFoundError:
            return None
        return FOLLOWING if text.partition(":")[0] == FOLLOWING else CATCHING_UP

    def answers_wait(self) -> AnswersWait:
        """Which responses of the leader waited for this copy; NEVER if no note says so."""
        try:
            text = self._disk.read(self._path).decode(errors="replace").strip()
            return AnswersWait(text.partition(": answers wait ")[2])
        except (FileNotFoundError, ValueError):
            return AnswersWait.NEVER

    def may_lack_acknowledged(self, *, is_claimed: bool) -> bool:
        """Whether the copy may lack writes that the leader has acknowledged; see the module's
        table.
        """
        answers_wait = self.answers_wait()
        if answers_wait is AnswersWait.WHILE_IN_SYNC:
            return not is_claimed
        return answers_wait is AnswersWait.NEVER

    def write_catching_up(self) -> None:
        self._write(CATCHING_UP)

    def write_following(self, answers_wait: AnswersWait) -> None:
        self._write(f"{FOLLOWING}: answers wait {answers_wait.value}")

    def _write(self, text: str) -> None:
        self._disk.write_atomic(self._path, f"{text}\n".encode())

    def remove(self) -> None:
        """Remove the note. From now on the directory belongs to a broker."""
        self._disk.unlink(self._path)
        self._disk.fsync_dir(self._data_dir)

    def check(self) -> bool:
        """Whether the directory is a standby's copy on which a broker may start.

        Raises: LogDirectoryError if the copy is not whole, or if a power loss may have damaged it.
                (A standby that follows does not flush, so the operating system decides when data
                are written.)
        """
        state = self.read()
        if state == CATCHING_UP:
            raise LogDirectoryError(
                f"{self._data_dir} is a standby's that has not caught up with its leader, and "
                "lacks data: start it with --standby-of again, or start the leader"
            )
        if state == FOLLOWING and not RunNote(self._disk, self._data_dir).is_same_run():
            raise LogDirectoryError(
                f"{self._data_dir} is a standby's, and its machine was down since, or the file "
                "system was mounted again: the disk may have lost data. Start it with "
                "--standby-of again; or, to continue with the data that it has, remove "
                f"{self._path}"
            )
        return state is not None


class Following:
    """One connection of a standby to its leader.

    Takes: make_durable, a function that flushes all written data; node_id and addresses, which are
           sent to the leader; on_holding, a function that is called before a change that makes the
           directory's state worse, and after a change that makes it better.
    After: once `has_caught_up`, the directory equals the leader's.
    """

    def __init__(
        self,
        disk: Disk,
        data_dir: str,
        secret: str,
        nonce: bytes,
        make_durable: Callable[[], None],
        *,
        node_id: int = -1,
        addresses: NodeAddresses = NOWHERE,
        on_holding: Callable[[Holding], None] = lambda holding: None,
    ) -> None:
        assert len(nonce) == NONCE_BYTES, "a nonce of another length"
        self._node_id, self._addresses, self._on_holding = node_id, addresses, on_holding
        self._disk, self._data_dir, self._make_durable = disk, data_dir, make_durable
        self._secret, self._nonce = secret, nonce
        self._frames = Frames()
        self._note = StandbyNote(disk, data_dir)
        self._replica = Replica(disk, data_dir)
        self._lost = LostPartitions(disk, data_dir)
        self._is_welcome = self._is_noted = False
        # Operations of the catch-up have no position. Until an operation with a position is
        # applied, -1 is sent, which the leader ignores.
        self._applied = -1
        self.has_caught_up = False

    def greeting(self) -> bytes:
        """The first bytes to send."""
        return frame(["hello", VERSION, self._nonce])

    def on_bytes(self, data: bytes) -> Iterator[bytes]:
        """Process received bytes. Gives: the bytes to send back, produced lazily because there may
        be many.

        Raises: WireError or DivergedError, after which the caller has to close the connection and
                start again; OSError.
        """
        for message in self._frames.feed(data):
            yield from self._on_message(message)

    def close(self) -> None:
        """Close all files."""
        self._replica.close()

    def _on_message(self, message: list[Any]) -> Iterator[bytes]:
        """Process a message of the leader. Gives: the parts of the answer."""
        name, *values = message
        if not self._is_welcome:
            yield from self._on_greeting(name, values)
        elif name == "do" and values and isinstance(values[0], list):
            if not self._is_noted:
                self._begin_to_change()
            for row in values[0]:
                operation = unpack(row)
                if self.has_caught_up or not self._lost.holds_back(operation):
                    self._replica.apply(operation)
            if len(values) > 1:
                self._applied = values[1]
            yield frame(["applied", self._applied])
        elif name == "caught up" and len(values) == 2:
            self._lost.on_caught_up()
            self._applied = values[0]
            self._take_over_from_here(_answers_wait(values[1]))
            yield frame(["applied", self._applied])
        elif name == "ping":
            yield frame(["applied", self._applied])
        else:
            raise WireError(f"the leader says {name[:20]!r}")

    def _on_greeting(self, name: str, values: list[Any]) -> Iterator[bytes]:
        """Process a message before the welcome: each side proves that it knows the secret, then the
        standby sends its inventory.
        """
        if name == "challenge" and len(values) == 2:
            nonce, shown = values
            if not isinstance(nonce, bytes) or not isinstance(shown, bytes):
                raise WireError("the leader's challenge cannot be read")
            if not hmac.compare_digest(shown, proof(self._secret, "leader", self._nonce)):
                raise WireError(
                    "the leader has another barnabas.replication.secret: set the same on both"
                )
            self._frames.most_bytes = MOST_BYTES
            shown, addresses = proof(self._secret, "standby", nonce), self._addresses
            listeners = dict(addresses.listeners)
            yield frame(["proof", shown, self._node_id, addresses.replication, listeners])
        elif name == "welcome" and len(values) == 1 and self._frames.most_bytes == MOST_BYTES:
            check_is_of_cluster(self._disk, self._data_dir, str(values[0]))
            self._is_welcome = True
            yield from self._inventory()
        elif name == "refused" and len(values) == 1:
            raise WireError(f"it refuses this standby: {_words(values[0])}")
        else:
            raise WireError(f"a leader begins with {name[:20]!r}")

    def _inventory(self) -> Iterator[bytes]:
        """The frames that list the files of the copy, with checksums."""
        rows: list[Any] = []
        piece_count = 0
        for path, part in take_inventory(self._disk, self._data_dir):
            rows.append([path, part.size, list(part.checksums)])
            piece_count += len(part.checksums)
            if len(rows) >= PARTS_IN_A_FRAME or piece_count >= PIECES_AT_ONCE:
                # The inventory is sent in parts, since the leader treats a standby that is silent
                # for a short time as disconnected.
                yield frame(["have", rows])
                rows, piece_count = [], 0
        yield frame(["have", rows])
        yield frame(["end"])

    def _begin_to_change(self) -> None:
        """Write to the note that the copy is not whole from now on, and remove the mark of a clean
        stop.
        """
        self._on_holding(Holding.NOTHING)
        self._note.write_catching_up()
        self._disk.unlink(f"{self._data_dir}/{CLEAN_SHUTDOWN_NAME}")
        self._is_noted = True

    def _take_over_from_here(self, answers_wait: AnswersWait) -> None:
        """Write to the note that the copy is whole, and how a broker may start on it."""
        self._make_durable()
        self._disk.unlink(f"{self._data_dir}/{CLEAN_SHUTDOWN_NAME}")
        RunNote(self._disk, self._data_dir).write()
        self._note.write_following(answers_wait)
        self._is_noted = True
        self.has_caught_up = True
        self._on_holding(Holding.WHOLE)


def holding_of(disk: Disk, data_dir: str) -> Holding:
    """The state of a directory that no process has open."""
    note = StandbyNote(disk, data_dir).read()
    run = RunNote(disk, data_dir)
    if note is not None:
        return Holding.WHOLE if note == FOLLOWING and run.is_same_run() else Holding.NOTHING
    if not disk.exists(f"{data_dir}/{META_PROPERTIES_NAME}"):
        return Holding.NOTHING
    is_whole = run.last_run() in (LastRun.CLEAN, LastRun.KILLED)
    return Holding.WHOLE if is_whole else Holding.POWER_LOST


def _words(value: Any) -> str:
    """A short printable form of a value, for the log. The leader that sent the value has not yet
    proved that it knows the secret.
    """
    return "".join(letter for letter in str(value)[:MOST_LETTERS] if letter.isprintable())


def _answers_wait(value: Any) -> AnswersWait:
    """The leader's `AnswersWait` setting, from a value of its message. Raises: WireError."""
    try:
        return AnswersWait(value)
    except ValueError as error:
        raise WireError(f"the leader says that answers wait {str(value)[:20]!r}") from error


def cluster_id_of(disk: Disk, data_dir: str) -> str:
    """The cluster id of a directory; empty if it has none. Raises: OSError."""
    try:
        properties = decode_properties(disk.read(f"{data_dir}/{META_PROPERTIES_NAME}"))
    except (FileNotFoundError, CorruptCheckpoint):
        return ""
    return properties.get("cluster.id", "")


def check_is_of_cluster(disk: Disk, data_dir: str, cluster_id: str) -> None:
    """Check that a directory may become a copy of the leader's directory.

    A standby removes all data that the leader does not have. So the directory has to belong to the
    leader's cluster, or be empty.

    Raises: LogDirectoryError if the directory belongs to another cluster, or has data and no
            cluster id, since `meta.properties` may have been lost. Only an unfinished copy may lack
            this file.
    """
    own = cluster_id_of(disk, data_dir)
    is_begun = StandbyNote(disk, data_dir).read() == CATCHING_UP
    if (
        not own
        and not is_begun
        and any(disk.is_dir(f"{data_dir}/{name}") for name in disk.list(data_dir))
    ):
        raise LogDirectoryError(
            f"{data_dir}/{META_PROPERTIES_NAME} does not name the directory's cluster, and a "
            "standby would remove its files: restore the file, or give an empty directory"
        )
    if own and cluster_id and own != cluster_id:
        raise LogDirectoryError(
            f"{data_dir} belongs to the cluster {own}, and its leader to the cluster "
            f"{cluster_id}: a standby would remove its files; give an empty directory"
        )
