"""The start offset of a share group, for each value of `share.auto.offset.reset`.

The expected values follow Java's Duration.parse, and AutoOffsetResetStrategy of Apache Kafka 4.3.
"""

from __future__ import annotations

import pytest

from barnabas.broker.settings.offset_reset import OffsetResetSetting
from barnabas.broker.settings.setting import ConfigError

SETTING = OffsetResetSetting("share.auto.offset.reset", "Where a group begins.")
DAY_MS = 86_400_000
WALL_MS = 1_000_000 * DAY_MS


@pytest.mark.parametrize(
    ("text", "timestamp"),
    [
        ("earliest", -2),
        ("latest", -1),
        ("by_duration:PT1H", WALL_MS - 3_600_000),
        ("by_duration:P2DT3H4M5.678S", WALL_MS - 2 * DAY_MS - 11_045_678),
        ("by_duration:p1d", WALL_MS - DAY_MS),
        ("by_duration:PT0,5S", WALL_MS - 500),
        ("by_duration:PT1.S", WALL_MS - 1000),
        ("by_duration:PT0S", WALL_MS),
        ("by_duration:P1DT-24H", WALL_MS),
        ("by_duration:-PT-1S", WALL_MS - 1000),
        ("by_duration:PT1H-1.5S", WALL_MS - 3_598_500),
        ("by_duration:P106751991167300D", 0),  # the start is before all timestamps
    ],
)
def test_the_reset_setting_gives_the_timestamp_to_search_for(text: str, timestamp: int) -> None:
    value = SETTING.parse(text)
    assert value.timestamp(WALL_MS) == timestamp
    assert SETTING.render(value) == text


@pytest.mark.parametrize(
    "text",
    [
        "", "none", "Latest", "by_duration", "by_duration:", "by_duration:x", "by_duration:P",
        "by_duration:PT", "by_duration:P1DT", "by_duration:PT.5S", "by_duration:P1H",
        "by_duration:PT1H1D", "by_duration:P1W", "by_duration:PT-1S", "by_duration:-PT1S",
        "by_duration:PT1.0123456789S", "by_duration:PT9223372036854775808S",
        "by_duration: PT1H", "by_duration:PT1H;", f"by_duration:PT{'1' * 200}S",
        "by_duration:PT\u0661S",
    ],
)  # fmt: skip
def test_what_is_no_place_to_begin(text: str) -> None:
    with pytest.raises(ConfigError, match="earliest, latest or by_duration"):
        SETTING.parse(text)
