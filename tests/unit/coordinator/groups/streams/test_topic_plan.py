"""The plan of the topics that a topology needs (KIP-1071). The expected responses and topics are
those of Apache Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from barnabas.coordinator.groups.streams.topic_plan import (
    MOST_PARTITIONS,
    MOST_TASKS,
    Status,
    TopicPlan,
    plan_topics,
)
from barnabas.coordinator.groups.streams.topology import CopartitionGroup, Subtopology, Topology
from barnabas.coordinator.result import InternalTopic
from barnabas.protocol.errors import Code, KafkaError


def internal(name: str, count: int = 0) -> InternalTopic:
    return InternalTopic(name, count, 0, ())


def sub(
    name: str,
    sources: Iterable[str] = (),
    *,
    reads: Iterable[InternalTopic] = (),
    writes: Iterable[str] = (),
    changelogs: Iterable[str] = (),
    joined: Iterable[tuple[tuple[int, ...], tuple[int, ...]]] = (),
) -> Subtopology:
    """A subtopology. `joined` has its copartition groups. Each group consists of indexes of source
    topics and of repartition topics that must have the same number of partitions.
    """
    return Subtopology(
        name, tuple(sources), (), tuple(map(internal, changelogs)), tuple(writes), tuple(reads),
        tuple(CopartitionGroup(sources_, (), repartition) for sources_, repartition in joined),
    )  # fmt: skip


def plan(topics: dict[str, int], *subtopologies: Subtopology) -> TopicPlan:
    return plan_topics(Topology(0, subtopologies), topics.get)


def missing(made: TopicPlan) -> dict[str, int]:
    return {topic.name: topic.partition_count for topic in made.missing}


def tasks(made: TopicPlan) -> dict[str, int]:
    return {name: one.task_count for name, one in made.subtopologies.items()}


def status(made: TopicPlan) -> Status | None:
    return None if made.problem is None else made.problem[0]


def test_a_subtopology_has_as_many_tasks_as_its_largest_topic_has_partitions() -> None:
    made = plan({"s": 4, "u": 2}, sub("0", ["s", "u"]))
    assert (made.is_ready, tasks(made), missing(made)) == (True, {"0": 4}, {})


def test_missing_internal_topics_get_the_partition_count_of_their_source() -> None:
    counting = sub("1", reads=[internal("rep")], changelogs=["log"])
    made = plan({"s": 4}, sub("0", ["s"], writes=["rep"]), counting)
    assert status(made) is Status.MISSING_INTERNAL_TOPICS
    assert missing(made) == {"log": 4, "rep": 4}
    there = plan({"s": 4, "log": 4, "rep": 4}, sub("0", ["s"], writes=["rep"]), counting)
    assert (there.is_ready, tasks(there)) == (True, {"0": 4, "1": 4})
    assert [one.is_stateful for one in there.subtopologies.values()] == [False, True]


def test_missing_source_topics_are_a_problem_and_are_not_created() -> None:
    made = plan({"s": 1}, sub("0", ["s", "x", "y", "a", "b"]))
    assert (status(made), made.subtopologies, made.missing) == (
        Status.MISSING_SOURCE_TOPICS, {}, (),
    )  # fmt: skip
    assert made.problem is not None and "a, b, x and 1 more" in made.problem[1]


def test_a_chain_of_repartition_topics_is_followed_from_its_source() -> None:
    last_first = [
        sub("0", reads=[internal("c")]),
        sub("1", reads=[internal("b")], writes=["c"]),
        sub("2", reads=[internal("a")], writes=["b"]),
        sub("3", ["s"], writes=["a"]),
    ]
    assert missing(plan({"s": 5}, *last_first)) == {"a": 5, "b": 5, "c": 5}


def test_a_long_chain_in_reverse_order_is_planned_in_linear_time() -> None:
    """Each subtopology precedes the one that it depends on. With repeated passes over the topology,
    the number of look-ups would grow with the square of its length.
    """
    count = 2_000
    chain = [
        sub(f"{number:04}", reads=[internal(f"r{number}")], writes=[f"r{number + 1}"])
        for number in reversed(range(count))
    ]
    asked = []

    def existing(name: str) -> int | None:
        asked.append(name)
        return 3 if name == "s" else None

    made = plan_topics(Topology(0, (*chain, sub("z", ["s"], writes=["r0"]))), existing)
    assert set(missing(made).values()) == {3}
    assert len(asked) < 10 * count


def test_a_topic_that_two_subtopologies_read_counts_for_both() -> None:
    made = plan(
        {"s": 2, "big": 6},
        sub("0", ["s"], writes=["rep"]),
        sub("1", ["big"], reads=[internal("rep")], changelogs=["log"]),
    )
    assert missing(made) == {"rep": 2, "log": 6}


def test_a_fixed_number_of_partitions_is_kept() -> None:
    made = plan({"s": 4}, sub("0", ["s"], writes=["f"]), sub("1", reads=[internal("f", 7)]))
    assert (missing(made), tasks(made)) == ({"f": 7}, {"0": 4, "1": 7})


def test_copartitioned_topics_must_have_equally_many_partitions() -> None:
    mismatch = plan({"s": 4, "u": 2}, sub("0", ["s", "u"], joined=[((0, 1), ())]))
    assert (status(mismatch), mismatch.missing) == (Status.INCORRECTLY_PARTITIONED_TOPICS, ())
    flexible = plan(
        {"s": 4, "u": 2},
        sub("0", ["s"], writes=["f"]),
        sub("1", ["u"], reads=[internal("f")], joined=[((0,), (0,))]),
    )
    assert missing(flexible) == {"f": 2}
    fixed = plan(
        {"s": 4, "u": 2},
        sub("0", ["s"], writes=["f"]),
        sub("1", ["u"], reads=[internal("f", 7)], joined=[((0,), (0,))]),
    )
    assert status(fixed) is Status.INCORRECTLY_PARTITIONED_TOPICS


def test_copartitioned_repartition_topics_take_the_fixed_or_the_largest_count() -> None:
    def joined(*reads: InternalTopic) -> TopicPlan:
        return plan(
            {"s": 4, "u": 2},
            sub("0", ["s"], writes=["f"]),
            sub("1", ["u"], writes=["g"]),
            sub("2", reads=reads, joined=[((), (0, 1))]),
        )

    assert missing(joined(internal("f"), internal("g"))) == {"f": 4, "g": 4}
    assert missing(joined(internal("f"), internal("g", 3))) == {"f": 3, "g": 3}
    both = joined(internal("f", 5), internal("g", 3))
    assert status(both) is Status.INCORRECTLY_PARTITIONED_TOPICS


def test_a_fixed_topic_elsewhere_does_not_count_in_a_copartition_group() -> None:
    made = plan(
        {"s": 4},
        sub("0", ["s"], writes=["f", "g"]),
        sub("1", reads=[internal("f")], joined=[((), (0,))]),
        sub("2", reads=[internal("g", 9)]),
    )
    assert missing(made) == {"f": 4, "g": 9}


@pytest.mark.parametrize("topic", ["rep", "log"])
def test_an_internal_topic_that_exists_must_have_its_partitions(topic: str) -> None:
    made = plan(
        {"s": 4, topic: 9},
        sub("0", ["s"], writes=["rep"]),
        sub("1", ["s"], reads=[internal("rep")], changelogs=["log"], joined=[((0,), (0,))]),
    )
    assert (status(made), made.missing) == (Status.INCORRECTLY_PARTITIONED_TOPICS, ())


@pytest.mark.parametrize(
    "subtopologies",
    [
        [sub("0")],
        [sub("0", ["s"], reads=[internal("x")])],
        [sub("0", reads=[internal("x")], writes=["x"])],
        [sub("0", ["s"], joined=[((5,), ())])],
        [sub("0", ["s"], joined=[((), (0,))])],
    ],
)
def test_a_topology_whose_partition_counts_cannot_be_derived_is_refused(
    subtopologies: list[Subtopology],
) -> None:
    with pytest.raises(KafkaError) as refusal:
        plan({"s": 1}, *subtopologies)
    assert refusal.value.code is Code.STREAMS_INVALID_TOPOLOGY


def test_a_loop_that_a_source_feeds_gets_the_sources_partitions() -> None:
    made = plan({"s": 3}, sub("0", ["s"], reads=[internal("x")], writes=["x"]))
    assert missing(made) == {"x": 3}


def test_a_topology_without_subtopologies_is_ready() -> None:
    assert plan({}).is_ready


# --- bounds ---------------------------------------------------------------------------------------


def test_a_topology_has_no_more_tasks_than_the_broker_can_assign() -> None:
    """A request of some kilobytes may have a thousand subtopologies that read one large topic."""
    most = [sub(str(at), ["s"]) for at in range(MOST_TASKS // 1_000)]
    assert plan({"s": 1_000}, *most).task_count == MOST_TASKS
    with pytest.raises(KafkaError, match=r"20001 tasks, .* may have 20000: use fewer") as refused:
        plan({"s": 1_000, "u": 1}, *most, sub("one more", ["u"]))
    assert refused.value.code == Code.STREAMS_INVALID_TOPOLOGY
    with pytest.raises(KafkaError, match="may have 20000"):
        plan({"s": 1}, sub("0", ["s"], writes=["rep"]), sub("1", reads=[internal("rep", 1 << 30)]))


def test_a_topology_reads_no_more_partitions_than_an_answer_can_list() -> None:
    """Each member is told which partitions the tasks of each endpoint read."""
    names = [f"t{at}" for at in range(MOST_PARTITIONS // 1_000)]
    sizes = dict.fromkeys(names, 1_000)
    assert plan(sizes, sub("0", names)).task_count == 1_000
    with pytest.raises(KafkaError, match="100001 partitions together, and may read 100000"):
        plan({**sizes, "u": 1}, sub("0", names), sub("1", ["u"]))


def test_a_topic_that_a_subtopology_names_twice_is_read_once() -> None:
    made = plan({"s": 1_000}, sub("0", ["s"] * 5_000))
    assert made.task_count == 1_000
    assert made.subtopologies["0"].subtopology.input_topics == ("s",)
