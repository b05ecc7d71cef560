"""De-duplication by a Bloom filter: never doubles, loses with the probability of its error."""

from __future__ import annotations

from bloom_filter import BloomFilter, deduplicate, keys_of
from guarantee_tools import make_topic, publish, read_committed

KEYS = 2_000


def test_a_filter_knows_all_that_was_added_and_its_error_is_as_given() -> None:
    known = BloomFilter(10_000, 0.01)
    for number in range(10_000):
        known.add(b"%d" % number)
    assert all(b"%d" % number in known for number in range(10_000))
    wrong = sum(b"%d" % number in known for number in range(10_000, 60_000))
    assert 300 < wrong < 700, "1 % of 50,000 are 500"
    assert len(known.bits) == 11_982, "9.6 bits for each element"


def test_repetitions_are_dropped_also_after_a_restart_and_few_new_records_are(
    servers: str, name: str
) -> None:
    """The first run ends after some batches. The second has an empty filter, which it fills from
    the output.
    """
    # contract: article/filters
    make_topic(servers, name, 3)
    make_topic(servers, f"{name}-once", 3)
    for _ in range(2):
        publish(servers, name, keys_of(KEYS))
    first = deduplicate(servers, name, f"{name}-once", BloomFilter(KEYS, 0.05), batches=3)
    assert 0 < first.records < 2 * KEYS
    second = deduplicate(servers, name, f"{name}-once", BloomFilter(KEYS, 0.05), batches=None)
    assert first.records + second.records == 2 * KEYS
    values = read_committed(servers, f"{name}-once")
    assert len(values) == len(set(values)), "nothing is doubled"
    lost = KEYS - len(values)
    assert 0 < lost < KEYS * 0.05, "the error is reached when the filter is full"
