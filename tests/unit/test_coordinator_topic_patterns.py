"""Patterns of topics' names: RE2's syntax (RE2's wiki, "Syntax") and its promise of linear time.

tests/property/test_coordinator_topic_patterns.py compares them with RE2 itself.
"""

from __future__ import annotations

import time

import pytest

from barnabas.coordinator.topic_patterns import (
    MAX_CACHED_STATES,
    MAX_KEPT_STATES,
    InvalidPatternError,
    TopicPattern,
    pattern_reader,
)


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("orders", ["orders"], ["orders.a", "my.orders", "Orders"]),
        (r"orders\..*", ["orders.a", "orders."], ["orders", "ordersxa"]),
        ("a|bc", ["a", "bc"], ["ab", "abc"]),
        ("(?i)Orders", ["orders", "ORDERS"], ["order"]),
        ("(?i:A)b", ["ab", "Ab"], ["aB"]),
        ("[a-c]+", ["abc", "a"], ["", "d", "ab1"]),
        ("[^a-c]", ["d", "1"], ["a", ""]),
        ("[]-]+", ["-"], ["a"]),
        (r"\d{2,3}", ["12", "123"], ["1", "1234"]),
        (r"\w+\.\D", ["a_1.x"], ["a_1.2"]),
        ("[[:upper:]][[:^digit:]]", ["Ab", "A."], ["ab", "A1"]),
        (r"\pL\p{Nd}", ["a1"], ["1a"]),
        (r"\Qa.b*\E", [], ["a.b", "axb"]),
        (r"\Qa.\Eb", ["a.b"], ["axb"]),
        (r"\x61\141", ["aa"], ["a"]),
        (r"\x{61}{2}", ["aa"], ["a"]),
        (r"\p{Lu}{2}", ["AB"], ["A", "ab"]),
        ("^a$", ["a"], ["aa"]),
        (r"\Aa\z", ["a"], ["ba"]),
        ("a^b", [], ["ab", "a^b"]),
        ("(?P<first>a)(?:b)(?<second>c)", ["abc"], ["ab"]),
        ("a{,3}", [], ["a", "aaa"]),  # braces that are no count stand for themselves
        ("a*?b+?", ["b", "aab", "bb"], ["a"]),
        ("(a*)*", ["", "aaa"], ["b"]),
        ("(a{0}|b)(?:)*()c{0,0}", ["", "b"], ["a", "bc"]),
    ],
)
def test_what_matches(pattern: str, matching: list[str], others: list[str]) -> None:
    compiled = TopicPattern(pattern)
    assert [name for name in matching + others if compiled.matches(name)] == matching


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("a[", "too early"),
        ("(a", "without its"),
        ("a)", "without its"),
        ("*", "nothing to repeat"),
        ("{2}", "nothing to repeat"),
        ("a**", "repeated"),
        ("a*+", "repeated"),
        ("a{2}{3}", "repeated"),
        ("a{1001}", "bounds"),
        ("a{3,2}", "bounds"),
        ("a{" + "1" * 5000 + "}", "bounds"),  # more digits than Python reads
        ("a(?=b)", "looks around"),
        ("a(?!b)", "looks around"),
        ("(?<=a)b", "looks around"),
        ("(?<!a)b", "looks around"),
        (r"(a)\1", "no escape"),
        ("(?P=n)", "looks around|name of a group"),
        (r"\y", "no escape"),
        (r"\bx", "boundaries"),
        ("[b-a]", "before it begins"),
        ("[[:nothing:]]", "no such class"),
        (r"\pQ", "category"),
        (r"\x{110000}", "no letter"),
        (r"\xZ1", "hexadecimal"),
        ("(?P<1 2>a)", "name"),
        ("(?P<n>a)(?P<n>b)", "twice"),
        ("(" * 500 + ")" * 500, "nested"),
        ("((a{1000}){100})", "too large"),
        ("(?--i)a", "looks around"),
        ("(?P<nn", "name"),
    ],
)
def test_what_is_refused_says_why(pattern: str, reason: str) -> None:
    with pytest.raises(InvalidPatternError, match=reason):
        TopicPattern(pattern)


def test_what_a_backtracking_matcher_never_ends_with_takes_no_time() -> None:
    began = time.process_time()
    for pattern in ("(a+)+$", "(a|aa)+", "(a|a?)+b", "(.*)*x", ".*.*.*.*=.*"):
        assert not TopicPattern(pattern).matches("a" * 248 + "!")
    assert time.process_time() - began < 2


def test_what_matches_nothing_is_not_repeated_a_billion_times() -> None:
    empty = "(" * 9 + ")" + "{1000})" * 8 + "{1000}"
    began = time.process_time()
    for pattern in (empty, "(" + "()" * 10_000 + "){0,1000}", f"a{empty}|(x{{0}}{empty}){{1000}}"):
        assert TopicPattern(pattern).matches("a" if pattern.startswith("a") else "")
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("text", "matching"), [("(a|b)*a(a|b){12}", 1 << 13), ("(.?){1000}(a|b)*", 1 << 14)]
)
def test_states_met_are_bounded(text: str, matching: int) -> None:
    """A deterministic automaton of the first has 8,192 states, each of the second is large."""
    pattern = TopicPattern(text)
    names = [f"{number:014b}".replace("0", "a").replace("1", "b") for number in range(1 << 14)]
    assert sum(map(pattern.matches, names)) == matching
    assert sum(map(len, pattern._states)) <= MAX_CACHED_STATES


def test_states_of_a_large_pattern_are_bounded() -> None:
    """A name of 249 letters meets 249 sets of up to 9,000 states each."""
    pattern = TopicPattern("(.*[ab].{0,999}){9}")
    assert pattern.matches("aabab" * 49 + "aabb")
    assert sum(map(len, pattern._states)) <= MAX_CACHED_STATES


def test_a_reader_keeps_the_last_patterns() -> None:
    read = pattern_reader()
    first = read("a")
    assert read("a") is first
    for number in range(100):
        read(f"b{number}")
    assert read("a") is not first


def test_a_reader_keeps_fewer_patterns_where_they_are_large() -> None:
    read = pattern_reader()
    large = [read(f"a{number}" + ".{1000}" * 15) for number in range(10)]
    is_kept = [read(pattern.text) is pattern for pattern in reversed(large)]
    assert is_kept[0]
    assert not is_kept[-1]
    assert len(large) * large[0].state_count > MAX_KEPT_STATES
