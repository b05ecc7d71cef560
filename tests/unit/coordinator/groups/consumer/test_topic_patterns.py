"""Patterns of topic names, with the syntax of RE2 (RE2's wiki, "Syntax") and in linear time.
tests/property/test_coordinator_topic_patterns.py compares the patterns with RE2 itself.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from helpers.slowness import at_desk_s, least_desk_s

from barnabas.coordinator.groups.consumer.topic_patterns import (
    LETTERS,
    LONGEST_AT_ONCE,
    MAX_CACHED_STATES,
    MAX_KEPT_STATES,
    MAX_STATES,
    MOST_KEPT_LETTERS,
    MOST_STEPS,
    WORK_BETWEEN_PAUSES,
    InvalidPatternError,
    PatternReader,
    TopicPattern,
    read_client_pattern,
    read_pattern,
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
        ("a$b", [], ["ab", "a$b"]),
        ("$a", [], ["a"]),
        ("a^", [], ["a"]),
        ("^", [""], ["a"]),
        ("$", [""], ["a"]),
        ("$^", [""], ["a"]),
        ("a((c|d)|^b)", ["ac", "ad"], ["ab"]),
        ("[a-a]", ["a"], ["b"]),
        ("a{\u0663}", ["a{\u0663}"], ["aaa"]),
        ("(?P<first>a)(?:b)(?<second>c)", ["abc"], ["ab"]),
        ("a{,3}", [], ["a", "aaa"]),  # braces without a count are literals
        ("a*?b+?", ["b", "aab", "bb"], ["a"]),
        ("(a*)*", ["", "aaa"], ["b"]),
        ("(a{0}|b)(?:)*()c{0,0}", ["", "b"], ["a", "bc"]),
        ("((?i)a)b", ["ab", "Ab"], ["aB"]),  # a flag ends with its group
        ("(?i)a(?-i)b", ["ab", "Ab"], ["aB"]),
        ("(?i-i)a", ["a"], ["A"]),
        ("(?-i)(?i-s:A)", ["a", "A"], []),
        ("(?imsU)A", ["a", "A"], []),
        ("(?-mU:a)", ["a"], ["A"]),
        ("(?i)[^a]", ["b", "B"], ["a", "A"]),
        # the Kelvin sign and the long s are cases of k and s
        (r"(?i)\x{212A}", ["k", "K"], ["l"]),
        (r"(?i)[\x{212A}-\x{212B}]", ["k", "K"], ["l"]),
        (r"(?i)\x{17F}", ["s", "S"], ["t"]),
        (r"\x{212A}", [], ["k", "K"]),
        (r"(?i)\p{Lu}", ["a", "A"], ["1"]),
        (r"\p{Lu}a{2}", ["Aaa"], ["Aa"]),  # \p{...} ends at the next brace
        (r"\x{61}b{2}", ["abb"], ["ab"]),
        ("(?P<a_1>x)(?P<b>y)", ["xy"], []),
        (r"\p{^L}\P{^L}\PL", ["1a."], ["aa.", "11.", "1aa"]),
        (r"[\pL\d]", ["a", "1"], ["."]),
        (r"\07\012\1411", ["\a\na1"], []),  # an octal escape has up to three digits
        (r"\0a", ["\0a"], []),
        (r"\a\f\t\n\r\v", ["\a\f\t\n\r\v"], []),
        (r"\.\-\*", [".-*"], []),
        (r"\x{10FFFF}", ["\U0010ffff"], []),
        (r"[a\-c]", ["a", "-", "c"], ["b"]),
        (r"[\x61-c]", ["a", "b", "c"], ["d", "x"]),
        (r"[a-\x63]", ["a", "b", "c"], ["d"]),
        ("[ac-]", ["a", "c", "-"], ["b"]),
        ("[[:^alpha:][:lower:]]", ["1", "a"], ["A"]),
        (r"\Qa\E{2}", ["aa"], ["a"]),
        (r"a\Q\Eb", ["ab"], []),
        (r"\Qab", ["ab"], []),  # to the end
        ("a{2,}", ["aa", "aaa"], ["a"]),
        ("a{2}?b", ["aab"], ["ab"]),
        ("a{x}", ["a{x}"], []),
        ("a{1,x}", ["a{1,x}"], []),
        ("a{2", ["a{2"], []),
        ("a{22", ["a{22"], []),
        ("ab2}", ["ab2}"], ["abb"]),
        ("a{" + "2".zfill(100) + "}", ["aa"], ["a"]),
        (r"\Qa.\Eb\Q.c\E", ["a.b.c"], ["axb.c"]),
        (r"\Q\Ea", ["a"], []),
        ("a{0,1000}", ["", "a"], ["b"]),
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
        ("a{" + "1" * 5000 + "}", "bounds"),  # more digits than int() accepts
        ("a(?=b)", "lookaround"),
        ("a(?!b)", "lookaround"),
        ("(?<=a)b", "lookaround"),
        ("(?<!a)b", "lookaround"),
        (r"(a)\1", "no escape"),
        ("(?P=n)", "lookaround|name of a group"),
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
        ("(?--i)a", "lookaround"),
        ("(?P<nn", "name"),
        ("(?P<>a)", "name"),
        ("(?i-)a", "no flag after"),
        ("(?i", "too early"),
        ("(?", "too early"),
        ("a\\", "too early"),
        (r"\p", "too early"),
        (r"\p{Lu", "category"),
        (r"\p{}", "category"),
        (r"\x", "hexadecimal"),
        (r"\x6", "hexadecimal"),
        (r"\x{}", "hexadecimal"),
        (r"\x{61", "hexadecimal"),
        (r"\x{6g}", "hexadecimal"),
        (r"\8", "no escape"),
        (r"\18", "no escape"),
        (r"\_", "no escape"),
        ("\\\xe9", "no escape"),
        ("\\\x80", "no escape"),
        (r"\B", "boundaries"),
        ("[[:alpha]]]", "no such class"),
        ("[[:alphax", "no such class"),
        ("[]", "too early"),
        ("a{1001,}", "bounds"),
        ("a{0,1001}", "bounds"),
        ("a?{2}", "repeated"),
        ("a+?*", "repeated"),
    ],
)
def test_what_is_refused_says_why(pattern: str, reason: str) -> None:
    with pytest.raises(InvalidPatternError, match=reason):
        TopicPattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "letter"),
    [
        ("a)", 2),
        ("*", 1),
        ("a{2}{3}", 5),
        ("a**", 3),
        ("ab{1001}", 3),
        (r"a\y", 3),
        ("a(?=b)", 4),
        ("a(b", 4),  # the position after the last character
        (r"a\x{61", 5),
        (r"a\p{Lu", 5),
        (r"\x{}", 5),
        (r"\p{}a", 5),
    ],
)
def test_a_refusal_points_at_the_letter(pattern: str, letter: int) -> None:
    with pytest.raises(InvalidPatternError, match=rf"\(at letter {letter} of "):
        TopicPattern(pattern)


def test_a_dot_matches_a_line_feed_only_with_the_s_flag() -> None:
    letters = LETTERS | {"\n"}
    assert not TopicPattern("a.", letters).matches("a\n")
    for pattern in ("(?s)a.", "a(?s:.)", r"a\C", r"a\s", "a[^b]"):
        assert TopicPattern(pattern, letters).matches("a\n"), pattern
    for pattern in ("(?s-s)a.", "(?s:a).", "(?mU)a."):
        assert not TopicPattern(pattern, letters).matches("a\n"), pattern
    assert not TopicPattern("(?s)a.").matches("a\n"), "no letter that names may have"


def test_the_nesting_depth_of_a_pattern_is_limited() -> None:
    assert TopicPattern("(" * 199 + "a" + ")" * 199).matches("a")
    with pytest.raises(InvalidPatternError, match="200 deep"):
        TopicPattern("(" * 200 + "a" + ")" * 200)
    assert TopicPattern("(a)" * 300).matches("a" * 300), "one after the other is not deep"
    for before in ("(a)" * 300, "(" * 100 + "(a)" + ")" * 100, "(" * 150 + "((a))"):
        deep = 60 if before.startswith("(" * 150) else 200
        with pytest.raises(InvalidPatternError, match="200 deep"):
            TopicPattern(before + "(" * deep + "a" + ")" * (deep + before.count("(") - 2))


def test_a_search_over_many_names_pauses_and_finds_all_matches() -> None:
    pattern = TopicPattern("(a|b)*a(a|b){9}")
    names = [f"{number:013b}".replace("0", "a").replace("1", "b") for number in range(1 << 13)]
    looking, pauses = pattern.matching(names), 0
    while True:
        try:
            next(looking)
        except StopIteration as end:
            found = end.value
            break
        pauses += 1
    assert list(found) == [name for name in names if name[3] == "a"]
    assert pauses > 2


def test_names_with_known_states_count_a_quarter_of_their_letters_as_work() -> None:
    pattern = TopicPattern("a*")
    assert pattern.matches("a" * 200)
    assert len(list(pattern.matching(["a" * 200] * 2_000))) == 2_000 * 50 // WORK_BETWEEN_PAUSES


def test_the_number_of_states_of_a_pattern_is_limited() -> None:
    assert TopicPattern("(a{1000}){19}a{999}").state_count == MAX_STATES
    with pytest.raises(InvalidPatternError, match="too large"):
        TopicPattern("(a{1000}){19}a{1000}")


SHOP = "|".join(f"shop-{number}.orders" for number in range(1_100))


@pytest.mark.parametrize(
    ("text", "is_cheap"),
    [
        ("[^x]?" * 6_500, False),
        ("[a-z]?" * 5_400, False),
        (".{0,1000}", True),
        ("(?:a|b|.?){1000}", False),
        ("(.*[ab].{0,999}){9}", False),
        (".*orders.*", True),
        (".{0,249}", True),
        ("[a-z]{1,255}", True),
        ("orders-.{1,200}", True),
        ("(a{1000}){19}", True),
        (SHOP, True),
        (f"({SHOP})-(eu|us)?", True),
    ],
)
def test_a_pattern_of_a_client_has_a_bound_on_the_steps_of_one_name(
    text: str, is_cheap: bool
) -> None:
    """A name of 249 letters takes some 50 ms at most. A list of topics is long, and cheap."""
    made = read_client_pattern(text)
    assert isinstance(made, TopicPattern) is is_cheap, made
    if not is_cheap:
        assert isinstance(read_pattern(text), TopicPattern), "it is read from a log"
        assert "one name may take more than 250000 steps" in str(made)


@pytest.mark.parametrize("text", ["[^x]?" * 160, ".{0,240}", f"({SHOP})?", "(a?b?){90}"])
def test_the_bound_is_at_least_what_a_name_takes(text: str) -> None:
    made = read_client_pattern(text)
    assert isinstance(made, TopicPattern)
    for name in ("ab" * 124, "shop-7.orders" * 19, "orders"):
        steps = 0
        made._forget()
        states = made._start
        for letter in name[:249]:
            following = made._step(states, letter)
            steps += len(states) + len(following)
            states = following
        assert steps <= MOST_STEPS


def test_patterns_that_defeat_backtracking_are_matched_quickly() -> None:
    began = time.process_time()
    for pattern in ("(a+)+$", "(a|aa)+", "(a|a?)+b", "(.*)*x", ".*.*.*.*=.*"):
        assert not TopicPattern(pattern).matches("a" * 248 + "!")
    assert at_desk_s(time.process_time() - began) < 2


def test_nested_repetitions_of_empty_patterns_are_matched_quickly() -> None:
    empty = "(" * 9 + ")" + "{1000})" * 8 + "{1000}"
    began = time.process_time()
    never = "(" * 5 + "x{0}" + "){1000}" * 5
    several = "(" + "()" * 10_000 + "){0,1000}"
    for pattern in (empty, never, several, f"a{empty}|(x{{0}}{empty}){{1000}}"):
        assert TopicPattern(pattern).matches("a" if pattern.startswith("a") else "")
    assert at_desk_s(time.process_time() - began) < 2


@pytest.mark.parametrize(
    ("text", "matching"), [("(a|b)*a(a|b){12}", 1 << 13), ("(.?){1000}(a|b)*", 1 << 14)]
)
def test_the_number_of_cached_states_is_bounded(text: str, matching: int) -> None:
    """A deterministic automaton would have 8,192 states for the first pattern, and large states for
    the second.
    """
    pattern = TopicPattern(text)
    names = [f"{number:014b}".replace("0", "a").replace("1", "b") for number in range(1 << 14)]
    assert sum(map(pattern.matches, names)) == matching
    assert sum(map(len, pattern._states)) <= MAX_CACHED_STATES


def test_the_number_of_cached_states_of_a_large_pattern_is_bounded() -> None:
    """The match of this name goes through 249 sets of states, one for each letter, and each set has
    up to 9,000 states.
    """
    pattern = TopicPattern("(.*[ab].{0,999}){9}")
    assert pattern.matches("aabab" * 49 + "aabb")
    assert sum(map(len, pattern._states)) <= MAX_CACHED_STATES


def test_a_reader_keeps_the_last_patterns() -> None:
    read = PatternReader()
    first = read("a")
    for number in range(99):
        read(f"c{number}")
    assert read("a") is first
    for number in range(100):
        read(f"b{number}")
    assert read("a") is not first


def test_a_reader_keeps_fewer_patterns_where_they_are_large() -> None:
    read = PatternReader()
    large = [read(f"a{number}" + ".{1000}" * 15) for number in range(10)]
    is_kept = [read(pattern.text) is pattern for pattern in reversed(large)]
    assert is_kept[:7] == [True] * 6 + [False]
    assert len(large) * large[0].state_count > MAX_KEPT_STATES


def test_a_reader_caches_the_error_of_an_invalid_pattern() -> None:
    """It raises another error each time, since an error keeps the frames that it has passed."""
    read = PatternReader()
    text = "a(" * LONGEST_AT_ONCE
    refusals = []
    assert read.takes_long(text)
    for _ in range(2):
        with pytest.raises(InvalidPatternError) as refused:
            read(text)
        refusals.append(refused.value)
        assert not read.takes_long(text)
    assert refusals[0].args == refusals[1].args and refusals[0] is not refusals[1]


def test_a_reader_keeps_a_bounded_number_of_letters() -> None:
    read = PatternReader()
    texts = [f"{number:02}" + "[" * 32_000 for number in range(40)]
    for text in texts:
        with pytest.raises(InvalidPatternError):
            read(text)
    kept = [text for text in texts if not read.takes_long(text)]
    assert kept == texts[-32:] and 32 * 32_002 <= MOST_KEPT_LETTERS < 33 * 32_002


@pytest.mark.parametrize(
    ("text", "is_long"),
    [("a" * 500, False), ("a" * 501, True), ("a{2}", True), ("[a-z]+|x.*", False)],
)
def test_a_long_or_counting_pattern_takes_long_until_it_is_cached(text: str, is_long: bool) -> None:
    read = PatternReader()
    assert read.takes_long(text) is is_long
    read.keep(text, read_pattern(text))
    assert not read.takes_long(text)
    assert read(text).matches("a" * len(text)) is (text[0] == "[" or text == "a" * len(text))


def test_an_error_shows_the_beginning_of_a_long_pattern() -> None:
    with pytest.raises(InvalidPatternError) as refused:
        TopicPattern("a" * 5000 + "(")
    assert len(str(refused.value)) < 250


@pytest.mark.parametrize(
    "part", [".", "\\pL", "\\w", "a", "(?i)a", "[a-z]", "[^a]", "a|", "a?", "()", "\\Qa\\E", "{"]
)
def test_patterns_that_are_compiled_in_the_core_take_less_than_20_ms(part: str) -> None:
    """The test measures CPU time, since the machine may be busy, and takes the shortest of several
    attempts.
    """
    text = part * (LONGEST_AT_ONCE // len(part))

    def attempts() -> Iterator[float]:
        for _ in range(5):
            began = time.thread_time()
            read_pattern(text)
            yield time.thread_time() - began

    assert least_desk_s(attempts(), 0.02) < 0.02


def test_a_case_flag_inside_a_group_ends_with_the_group() -> None:
    pattern = TopicPattern("a(?:(?i)a)a(?i)a")
    matching = [name for name in ("aaaa", "aAaA", "AAAA", "aaAa", "aAaa") if pattern.matches(name)]
    assert matching == ["aaaa", "aAaA", "aAaa"]
