"""Settings and properties files: the broker reads back any value that was written, and an error
message names the setting.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.settings.properties import read_properties
from barnabas.broker.settings.rows_broker import BROKER_SETTINGS
from barnabas.broker.settings.rows_topic import TOPIC_SETTINGS
from barnabas.broker.settings.setting import ConfigError, Kind, Setting

SETTINGS = [*TOPIC_SETTINGS.values(), *BROKER_SETTINGS.values()]
WHOLE = [setting for setting in SETTINGS if setting.kind in (Kind.INT, Kind.SHORT, Kind.LONG)]
BITS = {Kind.SHORT: 15, Kind.INT: 31, Kind.LONG: 63}
text = st.text(st.characters(blacklist_categories=("Cs",)), max_size=12)


def escaped(part: str) -> str:
    """The text with the escapes of Java's Properties.store."""
    out = []
    for character in part:
        if character in "\\ =:#!":
            out.append("\\" + character)
        elif character in "\t\n\r\f":
            out.append("\\" + {"\t": "t", "\n": "n", "\r": "r", "\f": "f"}[character])
        elif not " " <= character <= "~" and ord(character) < 0x10000:
            out.append(f"\\u{ord(character):04x}")
        else:
            out.append(character)
    return "".join(out)


@given(st.dictionaries(text, text, max_size=5), st.sampled_from(["=", ":", " = ", "\t:"]))
def test_a_properties_file_that_was_written_is_read_again(
    pairs: dict[str, str], separator: str
) -> None:
    lines = [f"{escaped(name)}{separator}{escaped(value)}" for name, value in pairs.items()]
    assert read_properties("\n# a comment\n".join(lines)) == pairs


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(content: str) -> None:
    try:
        read_properties(content)
    except ConfigError:
        assert "\\" in content, "only a wrong escape is refused"


@given(st.sampled_from(WHOLE), st.integers(-(2**64), 2**64))
def test_a_whole_number_is_accepted_only_within_its_bounds(setting: Setting, value: int) -> None:
    bits = BITS[setting.kind]
    lowest = max(-(2**bits), setting.lowest if setting.lowest is not None else -(2**bits))
    highest = min(2**bits - 1, setting.highest if setting.highest is not None else 2**bits - 1)
    try:
        assert setting.parse(f" {value} ") == value
        assert lowest <= value <= highest
        assert value not in setting.never
    except ConfigError as error:
        assert not lowest <= value <= highest or value in setting.never
        assert setting.name in str(error)


@given(st.sampled_from(SETTINGS), st.text(max_size=20))
def test_any_text_is_accepted_and_rendered_back_or_refused_with_the_settings_name(
    setting: Setting, value: str
) -> None:
    try:
        taken = setting.parse(value)
    except ConfigError as error:
        assert setting.name in str(error)
    else:
        shown = setting.render(taken)
        assert shown is not None
        assert setting.parse(shown) == taken
