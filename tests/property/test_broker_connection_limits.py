"""The connection-rate quota of an address (KIP-612), with clients that reconnect after a refusal.
Each client is accepted in the end, the rate is kept, and addresses without a quota are not slowed.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

from helpers.examples import drawn
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.logs.metadata import QuotaEntity
from barnabas.broker.rim.connection_limits import ConnectionLimits
from barnabas.broker.settings.config import BrokerConfig

BOUND, OTHER = "192.0.2.1", "198.51.100.7"
MOST_MS = 300_000
Quotas = dict[QuotaEntity, dict[str, float]]

window_numbers = st.integers(2, 12)
window_seconds = st.integers(1, 2)
rates = st.sampled_from([1.0, 3.0, 20.0, 300.0])  # Kafka's are integers
# The times at which clients first connect.
comings = st.lists(st.integers(0, 5000), min_size=1, max_size=40)
crowds = st.lists(st.integers(0, 2000), min_size=30, max_size=60)


class Setting(NamedTuple):
    """The number and length of the quota windows, and a rate."""

    number: int
    size_s: int
    rate: float

    def limits(self, quotas: Quotas) -> ConnectionLimits:
        """The limits of a broker with these windows and quotas."""
        properties = {
            "quota.window.num": str(self.number),
            "quota.window.size.seconds": str(self.size_s),
        }
        return ConnectionLimits(BrokerConfig.from_properties(properties), quotas, (), 0)

    def quota(self, address: str | None) -> Quotas:
        return {(("ip", address),): {"connection_creation_rate": self.rate}}


quota_settings = st.builds(Setting, window_numbers, window_seconds, rates)


def _admitted(
    limits: ConnectionLimits, comings: list[tuple[int, str]]
) -> list[tuple[int, str, int]]:
    """Return, for each accepted client, when it was accepted, its address, and when it first
    connected. A refused client reconnects a millisecond after the delay, before or after clients
    that first connect at that time.
    """
    queue = [(at_ms, number, address, at_ms) for number, (at_ms, address) in enumerate(comings)]
    heapq.heapify(queue)
    admitted = []
    while queue:
        now_ms, number, address, came_ms = heapq.heappop(queue)
        refusal = limits.on_connected(address, now_ms)
        if refusal is None:
            admitted.append((now_ms, address, came_ms))
            continue
        assert refusal.after_ms > 0, "it comes from an address that has as many as it may have"
        assert now_ms < MOST_MS, "a client is never accepted"
        heapq.heappush(queue, (now_ms + refusal.after_ms + 1, number, address, came_ms))
    return admitted


@settings(max_examples=drawn(30))
@given(quota_settings, crowds)
def test_the_rate_is_kept_and_every_client_is_accepted_in_the_end(
    setting: Setting, comings: list[int]
) -> None:
    limits = setting.limits(setting.quota(BOUND))
    admitted = _admitted(limits, [(at_ms, BOUND) for at_ms in comings])
    assert len(admitted) == len(comings)
    size_ms = setting.size_s * 1000
    for at_ms, _, _ in admitted:
        began_ms = at_ms - (setting.number - 1) * size_ms
        within = sum(began_ms < other_ms <= at_ms for other_ms, _, _ in admitted)
        assert within <= setting.rate * (setting.number + 1) * setting.size_s + 1
    last_ms = max(at_ms for at_ms, _, _ in admitted)
    length_ms = (setting.number + 1) * size_ms
    # With few windows and a small quota, only a part of the rate is reached. For example, half of
    # it is reached with a rate of 1 per second and two windows of a second.
    assert last_ms <= max(comings) + 3 * len(comings) / setting.rate * 1000 + 2 * length_ms


@settings(max_examples=drawn(30))
@given(quota_settings, comings, comings, st.booleans())
def test_other_addresses_are_not_slowed(
    setting: Setting, bound: list[int], others: list[int], has_default: bool
) -> None:
    """Addresses without a quota are never refused. If each address has a quota, an address gets the
    same decisions as if it were alone.
    """
    quotas = setting.quota(None if has_default else BOUND)
    both = [(at_ms, BOUND) for at_ms in bound] + [(at_ms, OTHER) for at_ms in others]
    among = [one for one in _admitted(setting.limits(quotas), both) if one[1] == OTHER]
    alone = _admitted(setting.limits(quotas), [(at_ms, OTHER) for at_ms in others])
    assert among == alone
    if not has_default:
        assert all(at_ms == came_ms for at_ms, _, came_ms in among)
