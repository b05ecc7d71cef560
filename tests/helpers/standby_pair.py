"""A leader and its standby on two simulated disks, and the connection between them, byte by byte.

Bytes move only in `deliver`, which carries a limited number of bytes each way and may split
messages anywhere.
"""

from __future__ import annotations

import random

from sim.disk import SimDisk

from barnabas.broker.settings.config import BrokerConfig
from barnabas.daemon.opening import open_broker
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.replication.following import Following
from barnabas.replication.leading import Leading, ReplicationSettings
from barnabas.replication.operations import is_local
from barnabas.replication.replicated_disk import ReplicatedDisk
from barnabas.replication.wire import NONCE_BYTES
from helpers.disk_broker import DATA_DIR, READER, DiskBroker

SECRET = "of both"


class LeaderBroker(DiskBroker):
    """A broker whose disk is replicated to a standby. `leading` is the leader's side of replication
    in the running process.
    """

    leading: Leading
    may_be_alone = True

    def open(self) -> None:
        """Start the broker on the disk."""
        self._asked.clear()
        self._answers.clear()
        self.replicated = ReplicatedDisk(self.disk, DATA_DIR)
        settings = ReplicationSettings(True, self.may_be_alone, 10_000, SECRET)
        self.leading = Leading(self.replicated, DATA_DIR, settings, lambda: None)
        config = BrokerConfig.from_properties(dict(self._properties))
        self.broker = open_broker(config, self._ids, disk=self.replicated, now_ms=self.now_ms)
        self.broker.on_connected(READER, "192.0.2.9", "192.0.2.1", 9092)
        self._carry_out()

    def delete(self, name: str) -> None:
        """Delete a topic."""
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=1000)
        assert self.call(request, 4).responses[0].error_code == Code.NONE


class Pair:
    """A leader and its standby. `leader` is the broker, which is created with the settings if none
    is given. `standby_disk` is the standby's disk.
    """

    def __init__(
        self,
        leader: LeaderBroker | None = None,
        standby_disk: SimDisk | None = None,
        **settings: str,
    ) -> None:
        self.leader = LeaderBroker(**settings) if leader is None else leader
        if standby_disk is None:
            standby_disk = SimDisk(random.Random(0), lambda: self.leader.now_ms)
            standby_disk.mkdir(DATA_DIR)
        self.standby_disk = standby_disk
        self.following: Following | None = None
        self._to_leader = self._to_standby = b""

    def connect(self) -> None:
        """Connect the standby, unless it is already connected."""
        if self.following is None:
            leading = self.leader.leading
            leading.on_connected(bytes(NONCE_BYTES), self.leader.now_ms)
            self.leader.replicated.publish = leading.publish
            self.following = Following(
                self.standby_disk,
                DATA_DIR,
                SECRET,
                b"n" * NONCE_BYTES,
                self.standby_disk.sync_all,
            )
            self._to_leader, self._to_standby = self.following.greeting(), b""

    def cut(self) -> None:
        """End the connection. Bytes in transit are lost."""
        if self.following is not None:
            self.following.close()
            self.following = None
            self.leader.replicated.publish = None
            self.leader.leading.on_closed()

    def deliver(self, most_bytes: int) -> bool:
        """Carry at most `most_bytes` bytes each way, and return whether there were any."""
        if self.following is None:
            return False
        leading = self.leader.leading
        part, self._to_leader = self._to_leader[:most_bytes], self._to_leader[most_bytes:]
        if part:
            leading.on_bytes(part, self.leader.now_ms)
        if not self._to_standby:
            self._to_standby = leading.take_output()
        sent, self._to_standby = self._to_standby[:most_bytes], self._to_standby[most_bytes:]
        for answer in self.following.on_bytes(sent):
            self._to_leader += answer
        return bool(part or sent) or (leading.link is not None and leading.link.is_behind)

    def deliver_all(self) -> None:
        """Carry bytes until none are in transit."""
        while self.deliver(1 << 20):
            pass

    @property
    def applied(self) -> int:
        """The position up to which the standby has acknowledged the changes, or -1 if it does not
        follow.
        """
        link = self.leader.leading.link
        return link.applied if self.leader.leading.follows and link is not None else -1

    def take_over(self) -> DiskBroker:
        """Start a broker on a copy of the standby's current files."""
        successor = DiskBroker(**SETTINGS_OF_SUCCESSOR)
        successor.load(files_of(self.standby_disk))
        successor.open()
        return successor


SETTINGS_OF_SUCCESSOR = {"barnabas_flush_journal_logs": "2"}


def files_of(disk: SimDisk) -> dict[str, bytes]:
    """All files of a disk, by path."""
    return {path: bytes(inode.data) for path, inode in disk.files()}


def replicated_files(disk: SimDisk) -> dict[str, bytes]:
    """The files that are replicated from the leader to the standby."""
    return {
        path: data
        for path, data in files_of(disk).items()
        if not is_local(path.removeprefix(DATA_DIR + "/"))
    }
