"""Checks of topic names, which follow the rules of Apache Kafka's Topic.validate and
hasCollision.
"""

from __future__ import annotations

import pytest

from barnabas.broker.logs.topic_names import LONGEST_NAME, TakenNames, check_topic_name
from barnabas.protocol.errors import Code, KafkaError


@pytest.mark.parametrize("name", ["a", "a.b_c-D9", "x" * LONGEST_NAME, "..."])
def test_names_that_may_be(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "größe"])
def test_invalid_topic_names_are_refused(name: str) -> None:
    with pytest.raises(KafkaError) as refused:
        check_topic_name(name)
    assert refused.value.code is Code.INVALID_TOPIC_EXCEPTION


def test_topic_names_that_differ_only_by_dot_and_underscore_collide() -> None:
    taken = TakenNames(["a.b"])
    taken.check("a.b")
    taken.add("c_d")
    for name in ("a_b", "c.d"):
        with pytest.raises(KafkaError, match=r"by '\.' and '_' alone"):
            taken.check(name)
