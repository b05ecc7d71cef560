"""The largest and the most repetitive requests of every API, sent to a broker with an authorizer.
This module sends a sample, and `make fuzz` all of them. The requirements are in fuzz/ordeal.py.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fuzz.giants import KINDS, TOO_MANY, array_paths, giants
from fuzz.giants import SHAPES as ELEMENTS
from fuzz.ordeal import ALL_RIGHTS, MOST_CALL_S, MOST_MB, PRODUCE, Ordeal, Outcome, findings_of
from fuzz.products import World
from helpers.api_rows import SHAPES
from helpers.our_messages import read_request
from helpers.processes import environment
from helpers.slowness import slowness

from barnabas.protocol.api import Api
from barnabas.protocol.api_table import APIS

pytestmark = pytest.mark.deep

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = "0.008"
MOST_ANSWER_A_BYTE = 20  # an error response of 100 bytes may repeat for each name of a few bytes


def test_a_sample_of_giants_delays_no_other_client() -> None:
    """A larger share is sent of three APIs, one for each kind of rule by which requests are
    processed in slices. These APIs were slow before they had such a rule.
    """
    always = ["Fetch", "Metadata", "DescribeGroups"]
    for arguments in (
        ["--share", SAMPLE],
        ["--share", "0.1", *[word for name in always for word in ("--api", name)]],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "fuzz.ordeal", "--newest", "--json", *arguments],
            cwd=ROOT,
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout, done.stderr
        summary = json.loads(done.stdout)
        assert summary["findings"] == {} and summary["count"] > 10


@pytest.mark.parametrize(
    "api", [api for api in APIS if api.key != PRODUCE], ids=lambda api: api.name
)
def test_a_repeated_element_does_not_repeat_long_contents_in_the_response(
    tmp_path: Path, api: Api
) -> None:
    """The requests repeat one element in an array, for each array of the oldest and the newest
    version. The element names existing objects: a group with a description of 800 KB, a topic, a
    user. Some responses have an entry for each element, as Apache Kafka's do, but none repeats long
    contents.
    """
    for number, version in enumerate(sorted({api.min_version, api.max_version})):
        ordeal = Ordeal(tmp_path / str(number))
        few, many = (list(giants(api, version, size, ("same",))) for size in (300, 6000))
        for short, long in zip(few, many, strict=True):
            expected = max(0, ordeal.offer(short, ALL_RIGHTS).answer_bytes)
            outcome = ordeal.offer(long, ALL_RIGHTS)
            assert outcome.answer_bytes <= expected + len(long.frame) * MOST_ANSWER_A_BYTE, outcome
            assert "error in the broker" not in outcome.reason


@pytest.mark.parametrize(
    "api", [api for api in APIS if api.name in SHAPES], ids=lambda api: api.name
)
def test_a_request_processed_in_slices_gets_the_same_response(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: Api
) -> None:
    """Requests with a few hundred elements, made from the schemas, are processed both at once and
    in slices of seven elements.
    """
    shapes = SHAPES[api.name]
    family = importlib.import_module(f"barnabas.broker.handlers.{api.family}")
    rows = family.ROWS
    for shape in shapes:
        version = min(api.max_version, shape.last_version)
        for giant in giants(api, version, 3000, ("distinct",)):
            if giant.name.split(" ")[2] not in [
                ".".join(level.rows for level in shape.levels[:depth])
                for depth in range(1, len(shape.levels) + 1)
            ]:
                continue
            answers = []
            for at_once in (7, 1_000_000):
                wide = tuple(one._replace(at_once=at_once) for one in shapes)
                changed = tuple(
                    row._replace(shapes=wide) if row.api.key == api.key else row for row in rows
                )
                monkeypatch.setattr(family, "ROWS", changed)
                ordeal = Ordeal(tmp_path / f"{giant.name.replace(' ', '-')}-{at_once}")
                outcome = ordeal.offer(giant, ALL_RIGHTS)
                assert outcome.answer_bytes > 0, outcome
                answers.append(ordeal.answer)
            assert answers[0] == answers[1], giant.name


@pytest.mark.parametrize(
    ("outcome", "is_found"),
    [
        (Outcome("a", MOST_CALL_S, 9.0, MOST_MB, 10, ""), False),
        (Outcome("a", MOST_CALL_S + 0.01, 9.0, 1, 10, ""), True),
        (Outcome("a", 0, 9.0, MOST_MB + 1, 10, ""), True),
        (Outcome("a", 0, 9.0, 1, -1, ""), True),
        (Outcome("JoinGroup 9 (with all)", 0, 9.0, 1, -1, ""), False),
        (Outcome("a", 0, 9.0, 1, -1, "a Fetch request has more elements in its lists"), False),
        (Outcome("a", 0, 9.0, 1, -1, "an error in the broker: KeyError"), True),
    ],
)
def test_what_does_not_hold_is_found(outcome: Outcome, is_found: bool) -> None:
    assert bool(findings_of(outcome)) is is_found


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_a_giant_is_a_whole_request_of_its_size(api: Api) -> None:
    """If giants were malformed, the broker would refuse them early, and the tests above would prove
    nothing.
    """
    for version in {api.min_version, api.max_version}:
        made = list(giants(api, version, most_bytes=4000, kinds=ELEMENTS))
        assert len(made) == len(ELEMENTS) * len(array_paths(api, version))
        for giant in made:
            start = 11 + (version >= api.flexible_from)
            request, end = read_request(api.name, giant.frame, start, version)
            assert end == len(giant.frame) and request.encode(version) == giant.frame[start:]
        whole = list(giants(api, version, most_bytes=200_000, kinds=(TOO_MANY,)))
        assert all(150_000 < len(giant.frame) <= 200_000 for giant in whole)
    assert set(ELEMENTS) < set(KINDS)


# --- products -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "streams_of_one_wide_topic",
        "streams_of_many_topics",
        "share_sessions_of_missing_partitions",
        "states_with_overlapping_batches",
        "consumers_of_missing_topics",
    ],
)
def test_a_product_delays_no_other_client_and_leaves_nothing(name: str) -> None:
    """One product for each kind of factor. `make fuzz` has them all."""
    done = subprocess.run(
        [sys.executable, "-m", "fuzz.products", "--name", name],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.startswith(name), done.stderr
    assert done.returncode == 0, done.stdout


def test_memory_that_each_round_of_a_product_leaves_behind_is_found(tmp_path: Path) -> None:
    kept: list[bytearray] = []

    def leak(world: World) -> None:
        kept.append(bytearray(60 << 20))

    # on a busy machine something else may be found, too
    found = findings_of(World(tmp_path).play("a leak", leak))
    assert any("rounds leave memory behind" in one for one in found)


def test_work_after_the_response_is_measured(tmp_path: Path) -> None:
    """A product is slow in a tick after its client has hung up, not in its request."""

    def spin(now_ms: int) -> None:
        end = time.thread_time() + 3 * MOST_CALL_S * slowness()
        while time.thread_time() < end:
            pass

    world = World(tmp_path)
    tick = world.broker.on_tick

    def on_tick(now_ms: int) -> None:
        tick(now_ms)
        if len(world.broker.connections) < 3:
            spin(now_ms)

    world.broker.on_tick = on_tick  # type: ignore[method-assign]
    found = findings_of(world.play("late work", lambda _: None))
    assert any("ms of CPU" in one for one in found)


def test_the_newest_apis_have_products() -> None:
    """Those of consumer, share and streams groups, except descriptions, which the conversations
    contain.
    """
    newest = {api.name for api in APIS if api.key >= 68 and "Group" in api.name}
    source = (ROOT / "tests/tools/fuzz/products.py").read_text()
    assert {name for name in newest if f"{name}Request" not in source} == set()
