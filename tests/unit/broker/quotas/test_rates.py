"""Rates and buckets, compared with Apache Kafka 3.9.

The throttle times were recorded with Kafka's defaults (11 windows of a second). The time of each
request is its LogAppendTime, so it differs by a few milliseconds from the time at which Kafka
computed the rate.
"""

from __future__ import annotations

import pytest

from barnabas.broker.quotas.rates import MOST_MS, Rate, TokenBucket, Windows

WINDOWS = Windows(11, 1000)
NEAR_MS = 15
# Each row has (bytes of the request's frame, time, throttle_time_ms), recorded with
# producer_byte_rate=1000.
KAFKAS = (
    (9122, 24, 0), (2120, 347, 912), (127, 766, 631), (127, 1274, 1251), (3120, 2485, 4159),
    (127, 2591, 4180), (127, 7608, 4290), (127, 10614, 4411), (127, 12622, 0), (127, 13632, 0),
    (2120, 14638, 0),
)  # fmt: skip


def test_throttle_times_of_a_rate_are_those_of_apache_kafka() -> None:
    rate = Rate(WINDOWS, KAFKAS[0][1])
    for size, now_ms, throttle_ms in KAFKAS:
        rate.record(size, now_ms)
        assert rate.throttle_ms(1000, now_ms) == pytest.approx(throttle_ms, abs=NEAR_MS)


def test_a_throttled_fetch_is_subtracted_from_the_rate_as_in_apache_kafka() -> None:
    """With consumer_byte_rate=1000, a fetch of 10,076 bytes waited 76 ms and then got its records,
    and the next one waited 9,897 ms.
    """
    rate = Rate(WINDOWS, 0)
    rate.record(10_076, 0)
    assert rate.throttle_ms(1000, 0) == 76
    rate.record(-10_076, 0)
    rate.record(10_076, 207)
    assert rate.throttle_ms(1000, 207) == 0
    rate.record(10_076, 350)
    assert rate.throttle_ms(1000, 350) == pytest.approx(9897, abs=100)


def test_throttle_times_of_a_token_bucket_are_those_of_apache_kafka() -> None:
    """Measured with Apache Kafka 3.9: controller_mutation_rate=2 allows a burst of 22 partitions.
    After requests for 3 and 30 partitions, the next one was refused with
    THROTTLING_QUOTA_EXCEEDED and a throttle time of 5,041 ms. Two more requests for one partition
    each, in versions that do not have this error, were carried out and throttled for 5,206 and
    5,537 ms.
    """
    bucket = TokenBucket(WINDOWS)
    for count, now_ms, throttle_ms in ((3, 3, 0), (30, 163, 0)):
        assert bucket.throttle_ms(2, now_ms) == throttle_ms
        bucket.record(count, 2, now_ms)
    assert bucket.throttle_ms(2, 411) == pytest.approx(5041, abs=100)
    for now_ms, throttle_ms in ((707, 5206), (929, 5537)):
        bucket.record(1, 2, now_ms)
        assert bucket.throttle_ms(2, now_ms) == pytest.approx(throttle_ms, abs=100)


def test_throttle_times_repeat_while_the_first_windows_fill() -> None:
    """The rate is computed over all windows but one, even if less time has passed. Apache Kafka
    therefore returned 4,153 ms at 2.6 s and 4,267 ms at 7.7 s.
    """
    rate = Rate(WINDOWS, 0)
    rate.record(12_000, 0)
    assert [rate.throttle_ms(1000, now_ms) for now_ms in (0, 2000, 10_000)] == [2000] * 3
    assert [rate.throttle_ms(1000, now_ms) for now_ms in (2001, 2999)] == [1999, 1001]
    assert rate.throttle_ms(1000, 10_999) == 1001
    assert rate.throttle_ms(1000, 11_000) == 0


def test_a_window_counts_until_its_last_use_is_old() -> None:
    rate = Rate(WINDOWS, 0)
    rate.record(1, 0)
    rate.record(100_000, 900)
    assert rate.throttle_ms(1000, 11_899) > 0
    assert rate.throttle_ms(1000, 11_900) == 0


def test_old_samples_and_full_buckets_are_obsolete() -> None:
    rate, bucket = Rate(WINDOWS, 0), TokenBucket(WINDOWS)
    rate.record(100_000, 0)
    bucket.record(100, 2, 0)
    assert not rate.is_obsolete(10_999)
    assert rate.throttle_ms(1, 10_999) > 0
    assert rate.is_obsolete(11_000)
    assert rate.throttle_ms(1, 11_000) == 0
    # The burst is 22. After 100 changes the bucket is full again in 50 s.
    assert not bucket.is_obsolete(49_999)
    assert bucket.is_obsolete(50_000)
    assert TokenBucket(WINDOWS).is_obsolete(0)


def test_throttle_times_are_bounded() -> None:
    """The field for the throttle time in the response has 32 bits."""
    rate, bucket = Rate(WINDOWS, 0), TokenBucket(WINDOWS)
    rate.record(1e15, 0)
    assert rate.throttle_ms(1e-300, 0) == MOST_MS
    bucket.record(1e15, 1e-300, 0)
    assert bucket.throttle_ms(1e-300, 0) == MOST_MS


@pytest.mark.parametrize("idle_ms", [0, 1, 10_999, 11_000, 3_600_000])
def test_a_bucket_holds_the_use_of_all_windows_and_no_more(idle_ms: int) -> None:
    """A client that was idle for an hour has the same burst as any other client."""
    bucket, burst = TokenBucket(WINDOWS), 2 * 11
    bucket.record(burst, 2, 0)
    held = min(burst, 2 * idle_ms / 1000)
    bucket.record(held + 1, 2, idle_ms)
    assert bucket.throttle_ms(2, idle_ms) == 500
