"""Compares topic name patterns with RE2 itself (google-re2). Both must accept the same patterns and
match the same names.
"""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from barnabas.coordinator.groups.consumer.topic_patterns import InvalidPatternError, TopicPattern

re2 = pytest.importorskip("re2")
OPTIONS = re2.Options()
OPTIONS.log_errors = False

PIECES = st.sampled_from(
    ["a", "b", "A", "1", "-", "_", r"\.", ".", "[ab]", "[^a]", "[a-c]", r"[\d-]", "[]a]", r"\d",
     r"\W", "[[:alpha:]]", "[[:^digit:]]", r"\pL", r"\PN", "^", "$", r"\A", r"\z", "(", "(?:",
     "(?i:", ")", "|", "*", "+", "?", "*?", "{2}", "{1,2}", "{2,}", "{", r"\Qa.b\E", r"\x61",
     r"\141", "(?P<n>", "(?=", r"\1", "[", "]", "\\"]
)  # fmt: skip
# Word boundaries, which a backslash and a "b" make, are refused on purpose (topic_patterns.py).
PATTERNS = st.lists(PIECES, max_size=7).map("".join).filter(lambda pattern: r"\b" not in pattern)
NAMES = st.text("abA1._-", max_size=5)


def theirs(pattern: str):
    """The pattern as google-re2 compiles it, or None if google-re2 refuses it."""
    try:
        return re2.compile(pattern, OPTIONS)
    except re2.error:
        return None


@given(PATTERNS, st.lists(NAMES, min_size=1, max_size=8))
def test_patterns_match_the_same_names_as_re2(pattern: str, names: list[str]) -> None:
    compiled = theirs(pattern)
    try:
        ours = TopicPattern(pattern)
    except InvalidPatternError:
        assert compiled is None
        return
    assert compiled is not None
    for name in names:
        assert ours.matches(name) == bool(compiled.fullmatch(name)), name


@given(
    PATTERNS | st.sampled_from(["(?s).+", ".*", r"\PL+", r"[^ä]*", r"(?i)ÄB.*", r"\S+", r"\W."]),
    st.lists(st.text("aAäÄ /é\n1$", max_size=5), min_size=1, max_size=8),
)
def test_patterns_match_the_same_names_as_re2_with_any_letters(
    pattern: str, names: list[str]
) -> None:
    """Names may contain any letters, as transactional ids do. The letters of the pattern come from
    the names.
    """
    compiled = theirs(pattern)
    assume(compiled is not None)
    ours = TopicPattern(pattern, frozenset("".join(names)))
    for name in names:
        assert ours.matches(name) == bool(compiled.fullmatch(name)), name


@given(st.text("ab|*+?()[]{}^$.\\-,12:PQE<>i", max_size=12))
def test_any_text_is_a_pattern_or_refused_with_a_reason(pattern: str) -> None:
    try:
        TopicPattern(pattern).matches("ab-1")
    except InvalidPatternError as error:
        assert "letter" in str(error) or "pattern" in str(error)


@given(st.text(max_size=6), NAMES)
def test_quoted_text_is_itself(text: str, name: str) -> None:
    assume("\\" not in text)
    assert TopicPattern(rf"\Q{text}\E").matches(name) == (text == name)
