"""A pattern in a heartbeat that takes long to compile. The worker compiles it, while other requests
are served.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.core_host import CoreHost
from helpers.slowness import least_desk_s

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

VERSION = 1
LONG = "|".join(f"topic-{number:04}" for number in range(1000))
WRONG = "(" * 600
LARGEST = {
    "letters": "a" * 19_900,
    "too many": "." * 32_767,
    "choices": "abcdefghi|" * 1900,
    "categories": "\\pL" * 10_000,
    "braces": "{" * 32_767,
    "groups": "()" * 16_000,
    "brackets": "[^a]" * 8000,
    "counts": "(a{1000}){19}",
}


def joining(regex: str, member_id: str = "m", group_id: str = "g") -> Any:
    return ConsumerGroupHeartbeatRequest(
        group_id, member_id, 0, rebalance_timeout_ms=10_000, subscribed_topic_regex=regex,
        topic_partitions=[],
    )  # fmt: skip


@pytest.fixture
def host(tmp_path: Path) -> CoreHost:
    host = CoreHost(tmp_path)
    host.create("topic-0001", 2)
    for connection in (1, 2, 3):
        host.connect(connection)
    return host


def test_other_requests_are_answered_while_a_long_pattern_is_compiled(host: CoreHost) -> None:
    host.ask(1, joining(LONG), VERSION)
    assert host.answers[1] == [] and len(host.work) == 1
    other = host.call(2, joining("topic-.*", "n"), VERSION)
    assert other.error_code == Code.NONE
    host.finish_work()
    (answer,) = host.answers[1]
    assert (answer.error_code, answer.member_id, host.work) == (Code.NONE, "m", [])
    assert host.call(3, joining(LONG, "o"), VERSION).error_code == Code.NONE, "it is known by now"


def test_an_invalid_long_pattern_is_refused_and_its_error_is_cached(host: CoreHost) -> None:
    host.ask(1, joining(WRONG), VERSION)
    host.finish_work()
    again = host.call(2, joining(WRONG, "n"), VERSION)
    for answer in (host.answers[1][0], again):
        assert answer.error_code == Code.INVALID_REGULAR_EXPRESSION
        assert len(answer.error_message) < 250


def test_one_whose_matching_would_take_seconds_is_refused_and_its_error_is_cached(
    host: CoreHost,
) -> None:
    """32 KB that keep 6,500 states alive at each letter took 2.5 s of CPU, for each group again."""
    costly = "[^x]?" * 6_500
    host.ask(1, joining(costly), VERSION)
    host.finish_work()
    again = host.call(2, joining(costly, "n", "h"), VERSION)
    for answer in (host.answers[1][0], again):
        assert answer.error_code == Code.INVALID_REGULAR_EXPRESSION
        assert "one name may take more than" in answer.error_message


def test_one_that_is_too_long_is_refused_at_once(host: CoreHost) -> None:
    assert host.call(1, joining("a" * 32_768), VERSION).error_code == Code.INVALID_REQUEST


def test_a_client_that_disconnected_does_not_join_after_its_pattern_is_compiled(
    host: CoreHost,
) -> None:
    host.ask(1, joining(LONG), VERSION)
    host.broker.on_closed(1)
    host.finish_work()
    assert host.answers[1] == []
    assert "g" not in host.broker.groups._groups


def test_without_the_feature_no_pattern_is_compiled(tmp_path: Path) -> None:
    host = CoreHost(tmp_path, barnabas_features="group.version=0")
    host.connect(1)
    assert host.call(1, joining(LONG), VERSION).error_code == Code.UNSUPPORTED_VERSION
    assert host.work == []


@pytest.mark.parametrize("content", LARGEST)
def test_no_pattern_blocks_the_core_for_20_ms(content: str, host: CoreHost) -> None:
    """The shortest CPU time of several attempts counts. Each attempt uses a new pattern."""

    def attempts() -> Iterator[float]:
        for number in range(4):
            regex = LARGEST[content][:-1] + str(number)
            before = time.thread_time()
            host.ask(1, joining(regex, group_id=content), VERSION)
            spent_s = time.thread_time() - before
            work = host.work.pop()
            result = work.run()
            before = time.thread_time()
            host.broker.on_worked(work, result, None, host.now_ms)
            host.carry_out()
            spent_s = max(spent_s, time.thread_time() - before)
            assert len(host.answers[1]) == number + 1
            yield spent_s

    assert least_desk_s(attempts(), 0.02) < 0.02
