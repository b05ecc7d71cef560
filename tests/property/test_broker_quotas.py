"""Compares rates with a model that keeps every window, token buckets with the limit that they
promise, and quotas with their order of precedence.
"""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.quotas.entities import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    IP,
    USER,
    Limit,
    limit_of_address,
    limit_of_client,
)
from barnabas.broker.quotas.rates import MOST_MS, Rate, TokenBucket, Windows

windows = st.builds(Windows, st.integers(1, 12), st.sampled_from([1000, 2000]))
uses = st.lists(
    st.tuples(st.integers(0, 4000), st.floats(0, 50_000)), min_size=1, max_size=60
)  # the uses, each as (milliseconds since the previous one, amount)
limits = st.floats(1, 10_000)
KEY = "producer_byte_rate"


class Model:
    """A rate that keeps all its windows, as (start, last use, total)."""

    def __init__(self, windows: Windows, now_ms: int) -> None:
        self._windows = windows
        self._all = [[now_ms, now_ms, 0.0]]

    def record(self, amount: float, now_ms: int) -> None:
        """Add an amount to the current window, or to a new one."""
        if now_ms - self._all[-1][0] >= self._windows.size_ms:
            self._all.append([now_ms, now_ms, 0.0])
        self._all[-1][1] = now_ms
        self._all[-1][2] += amount

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """How long a client must wait until its rate is within the limit, as in Apache Kafka's
        Rate. The elapsed time counts as at least all full windows but one.
        """
        length_ms = self._windows.number * self._windows.size_ms
        living = [one for one in self._all if now_ms - one[1] < length_ms]
        elapsed_ms = now_ms - min((begun for begun, _, _ in living), default=now_ms)
        while elapsed_ms < (self._windows.number - 1) * self._windows.size_ms:
            elapsed_ms += self._windows.size_ms
        rate = sum(total for _, _, total in living) * 1000 / max(elapsed_ms, 1)
        if rate <= limit:
            return 0
        wait_ms = (rate - limit) / limit * max(elapsed_ms, 1)
        return min(MOST_MS, math.floor(wait_ms + 0.5))


@given(windows, uses, limits)
def test_a_rate_agrees_with_a_model_that_keeps_all_windows(
    windows: Windows, uses: list[tuple[int, float]], limit: float
) -> None:
    now_ms = 1000
    rate, model = Rate(windows, now_ms), Model(windows, now_ms)
    for after_ms, amount in uses:
        now_ms += after_ms
        rate.record(amount, now_ms)
        model.record(amount, now_ms)
        assert abs(rate.throttle_ms(limit, now_ms) - model.throttle_ms(limit, now_ms)) <= 1


@given(windows, uses, limits)
def test_a_client_that_waits_for_the_bucket_keeps_to_the_limit(
    windows: Windows, uses: list[tuple[int, float]], limit: float
) -> None:
    """A Rate would promise less. It forgets the usage before the oldest window, even if that usage
    was above the limit.
    """
    bucket = TokenBucket(windows)
    now_ms, used = 0, 0.0
    at_once = limit * windows.number * windows.size_ms / 1000
    for after_ms, amount in uses:
        now_ms += after_ms
        assert used <= limit * now_ms / 1000 + at_once + 1e-6 * used + limit / 1000 * len(uses)
        bucket.record(amount, limit, now_ms)
        used += amount
        now_ms += bucket.throttle_ms(limit, now_ms)


names = st.sampled_from(["a", "b", None])
entities = st.dictionaries(st.sampled_from([USER, CLIENT_ID]), names, min_size=1).map(
    lambda entity: tuple(sorted(entity.items()))
)


values = st.floats(1, 100) | st.sampled_from([math.inf, math.nan])


@given(st.dictionaries(entities, values.map(lambda value: {KEY: value})))
def test_the_most_specific_quota_applies(
    quotas: dict[tuple[tuple[str, str | None], ...], dict[str, float]],
) -> None:
    """KIP-55: the user has precedence over the client id, and a name over the default. A quota
    without a limit exempts from the less specific ones.
    """

    def nearness(entity: tuple[tuple[str, str | None], ...]) -> tuple[int, ...]:
        named = dict(entity)
        return tuple(
            0 if kind not in named else 1 if named[kind] is None else 2
            for kind in (USER, CLIENT_ID)
        )

    fitting = [
        entity
        for entity in quotas
        if dict(entity).get(USER) in ("a", None) and dict(entity).get(CLIENT_ID) in ("b", None)
    ]
    limit = limit_of_client(quotas, KEY, "a", "b")
    if not fitting:
        assert limit is None
        return
    nearest = max(fitting, key=nearness)
    sharers = "a" if USER in dict(nearest) else "", "b" if CLIENT_ID in dict(nearest) else ""
    value = quotas[nearest][KEY]
    assert limit == (Limit(value, *sharers) if math.isfinite(value) else None)


@given(st.dictionaries(st.sampled_from(["10.0.0.1", "10.0.0.2", None]), values))
def test_the_quota_of_an_address_holds_before_the_default(quotas: dict[str | None, float]) -> None:
    of_entities = {((IP, name),): {CONNECTION_CREATION_RATE: value}
                   for name, value in quotas.items()}  # fmt: skip
    value = quotas.get("10.0.0.1", quotas.get(None, math.inf))
    limit = limit_of_address(of_entities, "10.0.0.1")
    assert limit == (value if math.isfinite(value) else None)
