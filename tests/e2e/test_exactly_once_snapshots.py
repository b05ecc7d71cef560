"""Consistent snapshots: the states of a pipeline at past cuts, rebuilt from its changelogs."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from barnabas import LocalBroker
from barnabas.exactly_once import Commit, ConfigurationError, Out, Pipeline, Record
from barnabas.exactly_once.snapshots import Catalogue

pytestmark = pytest.mark.e2e

CHANGELOGS = ["shop-by-page-changelog", "shop-by-user-changelog"]
PATIENCE_S = 60.0
ROUNDS = ("a", "ab", "abc")


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    """A broker whose topics all show whole transactions. Compaction keeps changes for an hour."""
    settings = {
        "barnabas.transactions.whole": "true",
        "barnabas.transactions.whole.cut.interval.ms": 20,
        "log.cleaner.min.compaction.lag.ms": 3_600_000,
    }
    with LocalBroker(settings=settings, topics={"views": 2, "seen": 2}) as running:
        yield running


@pytest.fixture(scope="module")
def times(broker: LocalBroker) -> list[int]:
    """Count views by page and by user, in three runs. Gives: a time after the cut of each."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    found = []
    for pages in ROUNDS:
        for number in range(30):
            producer.produce("views", f"user {number % 4}", pages[number % len(pages)])
        assert producer.flush(PATIENCE_S) == 0
        pipeline = Pipeline(
            broker.bootstrap_servers, "shop", reads="views", commit=Commit(records=4)
        )
        by_page = pipeline.state("by-page", default=int)
        by_user = pipeline.state("by-user", default=int)

        @pipeline.each
        def count(record: Record, out: Out) -> None:
            assert record.key is not None and record.value is not None
            by_page[record.key.decode()] += 1  # noqa: B023 - it is called within the round
            by_user[record.value.decode()] += 1  # noqa: B023
            out.send("seen", record.value)

        pipeline.run(until_end=True)
        ends = broker.cut(*CHANGELOGS)
        deadline = time.monotonic() + PATIENCE_S
        while broker.cut(*CHANGELOGS, at_ms=round(time.time() * 1000)) != ends:
            assert time.monotonic() < deadline, "no cut was recorded"
            time.sleep(0.01)
        found.append(round(time.time() * 1000))
    return found


# contract: paper/snapshots
def test_a_snapshot_has_the_states_of_its_time(broker: LocalBroker, times: list[int]) -> None:
    catalogue = Catalogue(broker.bootstrap_servers)
    for number, at in enumerate(times, 1):
        found = catalogue.snapshot(CHANGELOGS, at=at)
        assert found.time_ms <= at
        pages, users = (found.states[topic] for topic in CHANGELOGS)
        assert set(pages) == set(ROUNDS[number - 1])
        assert sum(pages.values()) == sum(users.values()) == 30 * number
    assert catalogue.snapshot(CHANGELOGS).states == found.states


def test_each_cut_has_both_states_of_the_same_records(
    broker: LocalBroker, times: list[int]
) -> None:
    """Also those amid the runs, which committed every four records."""
    catalogue = Catalogue(broker.bootstrap_servers)
    cuts = list(catalogue.cuts(CHANGELOGS))
    assert cuts == sorted(cuts, reverse=True) and len(cuts) >= len(times)
    for at in cuts[:: max(1, len(cuts) // 8)]:
        pages, users = (catalogue.snapshot(CHANGELOGS, at=at).states[topic] for topic in CHANGELOGS)
        assert sum(pages.values()) == sum(users.values())


def test_what_cannot_be_rebuilt_is_refused(broker: LocalBroker, times: list[int]) -> None:
    catalogue = Catalogue(broker.bootstrap_servers)
    with pytest.raises(ConfigurationError, match="is recorded up to"):
        catalogue.snapshot(CHANGELOGS, at=1)
    with pytest.raises(ConfigurationError, match="topic nowhere does not exist"):
        catalogue.snapshot(["nowhere"])
    broker.create_topic("plain", **{"barnabas.transactions.whole": "false"})
    with pytest.raises(ConfigurationError, match="no cuts are recorded of plain"):
        catalogue.snapshot(["plain"])
    broker.create_topic("short", **{"cleanup.policy": "compact", "min.compaction.lag.ms": 0})
    with pytest.raises(ConfigurationError, match="may lack keys"):
        catalogue.snapshot(["short"], at=times[0])


def test_a_catalogue_outlasts_a_restart_of_the_broker(
    broker: LocalBroker, times: list[int]
) -> None:
    """With which the broker begins another leader epoch."""
    catalogue = Catalogue(broker.bootstrap_servers, settings={"log_level": 0})
    before = catalogue.snapshot(CHANGELOGS, at=times[-1])
    broker.restart()
    assert catalogue.snapshot(CHANGELOGS, at=times[-1]) == before
