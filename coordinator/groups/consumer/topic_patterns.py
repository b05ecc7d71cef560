r"""Patterns of topic names in RE2's syntax, matched in time linear in the length of the name.

A pattern is parsed, compiled to a nondeterministic automaton (Thompson's construction), and run as
a deterministic one whose states are made when a name first reaches them. The matcher never
backtracks, so no pattern of a client can block the broker: `(a+)+$` costs as much as `a+`.

    supported    literals, `.`, classes with ranges and `[:alpha:]`, `\d \D \w \W \s \S`,
                 `\pL` and the like, escapes, `\Q...\E`, groups of every kind, `|`, `* + ?`
                 and `{n,m}` with their lazy forms, flags `(?i)` `(?s)` `(?U)` `(?m)`, anchors
                 `^ $ \A \z`
    rejected     what RE2 rejects: look-around, back references, possessive and nested repetition,
                 counts above 1,000; also `\b` and `\B`, which are useless if the whole name has to
                 match, patterns of more than 20,000 states, and patterns by which a name may keep
                 so many states alive that it takes more than MOST_STEPS

A pattern matches a whole name, as in Apache Kafka. A class is limited to the characters that the
matched names may have: names of topics, or other texts (transactional ids, KIP-1152). `\p{...}`
supports the general categories and no scripts.

Source: RE2's wiki, "Syntax"; KIP-848, "Regular Expressions".
"""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.protocol.errors import detached

LETTERS = frozenset(string.ascii_letters + string.digits + "._-")
MAX_REPEAT = 1000
# the maximum number of digits in a count, since Python does not convert thousands of digits
MOST_DIGITS = 100
MAX_STATES = 20_000
MAX_DEPTH = 200
MAX_CACHED_STATES = 50_000  # the maximum number of states in all cached sets of one automaton
MAX_KEPT_STATES = 100_000  # the maximum number of states in all cached patterns together
MOST_KEPT_LETTERS = 1 << 20  # the maximum number of characters in all cached patterns together
MOST_KEPT = 100
# Compiling a longer pattern, or one that counts repetitions, takes up to 100 ms.
LONGEST_AT_ONCE = 500
LONGEST_NAME = 249  # of a topic
MOST_STEPS = 250_000  # the states that one name may visit at most, which takes some 50 ms
MOST_SHOWN = 100  # the number of characters of a pattern that an error message shows
# the number of states that are visited between two pauses, which takes some 10 ms
WORK_BETWEEN_PAUSES = 20_000

_CLASSES = {
    "d": frozenset(string.digits),
    "w": frozenset(string.ascii_letters + string.digits + "_"),
    "s": frozenset("\t\n\f\r "),
}
_POSIX_CLASSES = {
    "alnum": frozenset(string.ascii_letters + string.digits),
    "alpha": frozenset(string.ascii_letters),
    "ascii": frozenset(map(chr, range(128))),
    "blank": frozenset("\t "),
    "cntrl": frozenset(map(chr, (*range(32), 127))),
    "digit": frozenset(string.digits),
    "graph": frozenset(map(chr, range(33, 127))),
    "lower": frozenset(string.ascii_lowercase),
    "print": frozenset(map(chr, range(32, 127))),
    "punct": frozenset(string.punctuation),
    "space": frozenset("\t\n\v\f\r "),
    "upper": frozenset(string.ascii_uppercase),
    "word": frozenset(string.ascii_letters + string.digits + "_"),
    "xdigit": frozenset(string.hexdigits),
}
_CONTROLS = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
_OCTAL = tuple("01234567")
_HIGHEST_CODE_POINT = 0x10FFFF


class InvalidPatternError(ValueError):
    """The text is not a pattern in RE2's syntax; the message names the mistake and its position."""


# --- the parts of a pattern ---------------------------------------------------------------------


class _One(NamedTuple):
    """A part of a pattern that matches one character of a set."""

    letters: frozenset[str]


class _Sequence(NamedTuple):
    parts: list[_Node]


class _Choice(NamedTuple):
    options: list[_Node]


class _Repeat(NamedTuple):
    """A repeated part. `highest` is None if there is no upper bound."""

    part: _Node
    lowest: int
    highest: int | None


class _Start(NamedTuple):
    """Matches the empty text at the beginning of the name."""


class _End(NamedTuple):
    """Matches the empty text at the end of the name."""


_Node = _One | _Sequence | _Choice | _Repeat | _Start | _End
_NOTHING = _Sequence([])


# U+017F (long s) and U+212A (the sign of Kelvin) are further cases of ASCII letters.
_THIRD_CASES = {"s": "\u017f", "k": "\u212a"}


def _cases_of(letter: str) -> frozenset[str]:
    """The letter in all its cases, as RE2 folds them."""
    lower = letter.upper().lower()
    cases = (letter, lower, lower.upper(), _THIRD_CASES.get(lower, letter))
    return frozenset(one for one in cases if len(one) == 1)


class _Parser:
    """A parser of one pattern, which it reads from left to right."""

    def __init__(self, text: str, letters: frozenset[str]) -> None:
        self._text, self._at, self._depth = text, 0, 0
        self._letters = letters
        self._ignores_case = self._dot_is_any = False
        self._group_names: set[str] = set()
        # the parts that match a literal character under the current flags
        self._literals: dict[str, _One] = {}
        self._categories: dict[str, frozenset[str]] = {}
        self._any, self._any_but_line_end = _One(letters), _One(letters - {"\n"})

    def parse(self) -> _Node:
        node = self._choice()
        if self._at < len(self._text):
            self._refuse("there is a ')' without its '('")
        return node

    def _refuse(self, reason: str) -> None:
        shown = self._text[:MOST_SHOWN] + ("..." if len(self._text) > MOST_SHOWN else "")
        raise InvalidPatternError(f"{reason} (at letter {self._at + 1} of {shown!r})")

    def _take(self, text: str) -> bool:
        """If the given text comes next, read it. Gives: whether the text came next."""
        if not self._text.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _next(self) -> str:
        """The next character of the pattern. Raises: InvalidPatternError at its end."""
        if self._at >= len(self._text):
            self._refuse("the pattern ends too early")
        self._at += 1
        return self._text[self._at - 1]

    def _choice(self) -> _Node:
        """Parse alternatives that `|` separates."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._refuse(f"groups are nested more than {MAX_DEPTH} deep")
        options = [self._sequence()]
        while self._take("|"):
            options.append(self._sequence())
        self._depth -= 1
        return options[0] if len(options) == 1 else _Choice(options)

    def _sequence(self) -> _Node:
        """A sequence of parts. Empty parts are left out.

        Every other part makes at least one state, so `MAX_STATES` limits the work on all parts,
        including repeated ones.
        """
        parts: list[_Node] = []
        atom: _Node | None
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            if self._take("\\Q"):
                end = self._text.find("\\E", self._at)
                literal = self._text[self._at : end if end >= 0 else None]
                self._at = end + 2 if end >= 0 else len(self._text)
                parts += [self._literal(letter) for letter in literal]
                if not literal:
                    continue
                atom = parts.pop()
            else:
                atom = self._atom()
            part = _NOTHING if atom is None else self._repeated(atom)
            if part != _NOTHING:
                parts.append(part)
        return parts[0] if len(parts) == 1 else _Sequence(parts)

    # --- repetition ------------------------------------------------------------------------------

    def _repeated(self, node: _Node) -> _Node:
        """The part with the repetition (`*`, `+`, `?`, `{n,m}`) that follows it, if any."""
        bounds = self._bounds()
        if bounds is None:
            return node
        self._take("?")  # a lazy repetition matches the same names
        start = self._at
        if self._bounds() is not None:
            self._at = start
            self._refuse("a repetition is repeated")
        if node == _NOTHING or bounds == (0, 0):
            return _NOTHING
        return _Repeat(node, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        """The bounds of the next repetition; None if no repetition is next."""
        if self._take("*"):
            return 0, None
        if self._take("+"):
            return 1, None
        if self._take("?"):
            return 0, 1
        return self._counted()

    def _counted(self) -> tuple[int, int | None] | None:
        """The bounds of `{n}`, `{n,}` and `{n,m}`; other text in braces is literal."""
        end = self._text.find("}", self._at)
        if not self._text.startswith("{", self._at) or end < 0:
            return None
        lowest, comma, highest = self._text[self._at + 1 : end].partition(",")
        if not _is_number(lowest) or (highest and not _is_number(highest)):
            return None
        first, last = MAX_REPEAT + 1, None
        if max(len(lowest), len(highest)) <= MOST_DIGITS:
            first = int(lowest)
            last = int(highest) if highest else None if comma else first
        if max(first, last or 0) > MAX_REPEAT or (last is not None and last < first):
            self._refuse(f"a repetition has wrong bounds: 0 to {MAX_REPEAT}, the lowest first")
        self._at = end + 1
        return first, last

    # --- one part --------------------------------------------------------------------------------

    def _atom(self) -> _Node | None:
        """One part of the pattern; None for flags that apply to the enclosing group."""
        start = self._at
        if self._bounds() is not None:
            self._at = start
            self._refuse("there is nothing to repeat")
        letter = self._next()
        if letter == "(":
            return self._group()
        if letter == "[":
            return _One(self._bracket())
        if letter == ".":
            return self._any if self._dot_is_any else self._any_but_line_end
        if letter == "^":
            return _Start()
        if letter == "$":
            return _End()
        if letter == "\\":
            return self._escape()
        return self._literal(letter)

    def _literal(self, letter: str) -> _One:
        """The part that matches the letter, in both cases if the flag `i` is set."""
        literal = self._literals.get(letter)
        if literal is None:
            literal = self._literals[letter] = _One(self._both_cases(frozenset(letter)))
        return literal

    def _both_cases(self, letters: frozenset[str]) -> frozenset[str]:
        """The letters, in both cases if the flag `i` is set."""
        if not self._ignores_case:
            return letters
        return frozenset(other for one in letters for other in _cases_of(one))

    def _group(self) -> _Node | None:
        """Parse a group after its `(`; None if it only sets flags."""
        before = self._ignores_case, self._dot_is_any
        if self._take("?"):
            if self._take("P<") or (
                self._text.startswith("<", self._at)
                and not self._text.startswith(("<=", "<!"), self._at)
                and self._take("<")
            ):
                self._group_name()
            elif self._flags():
                return None  # the flags apply up to the end of the enclosing group
        node = self._choice()
        if not self._take(")"):
            self._refuse("there is a '(' without its ')'")
        self._ignores_case, self._dot_is_any = before
        self._literals.clear()
        return node

    def _group_name(self) -> None:
        """Read the name of a group up to its `>`; it has no effect on what matches."""
        end = self._text.find(">", self._at)
        name = self._text[self._at : end] if end >= 0 else ""
        if not name or not name.replace("_", "a").isalnum() or name in self._group_names:
            self._refuse("the name of a group is wrong, or given twice")
        self._group_names.add(name)
        self._at = end + 1

    def _flags(self) -> bool:
        """Read flags, such as `i-s)` or `i-s:`. Gives: whether `)` ends them, which opens no
        group.
        """
        value, count = True, 0
        while True:
            letter = self._next()
            if letter in ":)":
                if not value and not count:
                    self._refuse("there is no flag after the '-'")
                return letter == ")"
            if letter == "-" and value:
                value, count = False, 0
                continue
            if letter not in "imsU":
                self._at -= 1
                self._refuse(
                    "RE2 has no such group: it supports neither lookaround nor back references"
                )
            count += 1
            if letter == "i":
                self._ignores_case = value
                self._literals.clear()
            elif letter == "s":
                self._dot_is_any = value

    def _escape(self) -> _Node:
        """The part of an escape, after its backslash."""
        letter = self._next()
        if letter == "A":
            return _Start()
        if letter == "z":
            return _End()
        if letter in "bB":
            self._refuse("word boundaries are not supported: write the letters that may be there")
        if letter == "C":
            return _One(self._letters)
        letters = self._class_escape(letter)
        if letters is not None:
            return _One(letters)
        return self._literal(self._letter_escape(letter))

    def _class_escape(self, letter: str) -> frozenset[str] | None:
        r"""The characters of a class such as `\d` or `\pL`; None if the escape is not a class."""
        if letter in "dws":
            return _CLASSES[letter]
        if letter in "DWS":
            return self._letters - _CLASSES[letter.lower()]
        if letter in "pP":
            return self._category(is_negated=letter == "P")
        return None

    def _category(self, *, is_negated: bool) -> frozenset[str]:
        """The letters of a general category (`\\pL`, `\\p{Lu}`), as far as names may have
        them.
        """
        name = self._next()
        if name == "{":
            end = self._text.find("}", self._at)
            name = self._text[self._at : end] if end >= 0 else ""
            self._at = end + 1 if end >= 0 else self._at
        if name.startswith("^"):
            name, is_negated = name[1:], not is_negated
        if name not in ("L", "N", "P", "S", "Z", "C", "M", "Lu", "Ll", "Nd", "Pd", "Pc", "Po"):
            self._refuse("no letter of a topic's name is in that general category")
        letters = self._categories.get(name)
        if letters is None:
            letters = self._categories[name] = frozenset(
                one for one in self._letters if unicodedata.category(one).startswith(name)
            )
        return self._letters - letters if is_negated else self._both_cases(letters)

    def _letter_escape(self, letter: str) -> str:
        """The character that an escape denotes."""
        if letter in _CONTROLS:
            return _CONTROLS[letter]
        if letter == "x":
            return self._hexadecimal()
        if letter == "0" or (letter in _OCTAL and self._text[self._at : self._at + 1] in _OCTAL):
            return self._octal(letter)
        if letter.isalnum() or letter == "_" or ord(letter) >= 128:
            self._at -= 1
            self._refuse(f"RE2 has no escape \\{letter}")
        return letter

    def _octal(self, digits: str) -> str:
        """The character of an octal escape of up to three digits, some of which have been read
        already.
        """
        while len(digits) < 3 and self._text[self._at : self._at + 1] in _OCTAL:
            digits += self._next()
        return chr(int(digits, 8))

    def _hexadecimal(self) -> str:
        """The character of `\\x41` or `\\x{41}`, after the `x`."""
        if self._take("{"):
            end = self._text.find("}", self._at)
            digits = self._text[self._at : end] if end >= 0 else ""
            self._at = end + 1 if end >= 0 else self._at
        else:
            digits = self._text[self._at : self._at + 2]
            self._at += 2
            if len(digits) < 2:
                digits = ""
        if not digits or any(digit not in string.hexdigits for digit in digits):
            self._refuse("a letter's hexadecimal number is wrong")
        if int(digits, 16) > _HIGHEST_CODE_POINT:
            self._refuse("no letter has that number")
        return chr(int(digits, 16))

    # --- classes ---------------------------------------------------------------------------------

    def _bracket(self) -> frozenset[str]:
        """The letters of a class `[...]`, after its `[`. A `]` in the first place is a letter."""
        is_negated = self._take("^")
        letters: frozenset[str] = frozenset()
        is_first = True
        while is_first or not self._take("]"):
            is_first = False
            if self._take("[:"):
                letters |= self._posix_class()
                continue
            if self._take("\\"):
                escaped = self._next()
                letters_of_class = self._class_escape(escaped)
                if letters_of_class is not None:
                    letters |= letters_of_class
                    continue
                first = self._letter_escape(escaped)
            else:
                first = self._next()
            letters |= self._range(first)
        letters = self._both_cases(letters)
        return self._letters - letters if is_negated else letters

    def _range(self, first: str) -> frozenset[str]:
        """The characters from `first` to the one after a dash; only `first` if no dash follows."""
        if not self._text.startswith("-", self._at) or self._text.startswith("-]", self._at):
            return frozenset(first)
        self._at += 1
        last = self._letter_escape(self._next()) if self._take("\\") else self._next()
        if last < first:
            self._refuse("a range of letters ends before it begins")

        def is_in_range(one: str) -> bool:
            cases = _cases_of(one) if self._ignores_case else one
            return any(first <= each <= last for each in cases)

        return frozenset(filter(is_in_range, self._letters))  # a name has no other letters

    def _posix_class(self) -> frozenset[str]:
        """The letters of a class such as `[:alpha:]`, after its `[:`."""
        end = self._text.find(":]", self._at)
        name = self._text[self._at : end] if end >= 0 else ""
        is_negated = name.startswith("^")
        letters = _POSIX_CLASSES.get(name.removeprefix("^"))
        if letters is None:
            self._refuse("there is no such class of letters")
        assert letters is not None
        self._at = end + 2
        return self._letters - letters if is_negated else letters


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


# --- the automaton ------------------------------------------------------------------------------

_ACCEPT = 0
_States = frozenset[int]
_NO_STEPS: Mapping[str, _States] = {}


@dataclass(slots=True)
class _Automaton:
    """The nondeterministic automaton; state 0 accepts.

    letters: by state, the characters that lead to `following`; None if the state leads to all of
    `following` without a character. condition: `_Start` or `_End` if the state only leads on at the
    beginning or the end of the name.
    """

    letters: list[frozenset[str] | None] = field(default_factory=lambda: [None])
    following: list[tuple[int, ...]] = field(default_factory=lambda: [()])
    condition: list[type[_Start] | type[_End] | None] = field(default_factory=lambda: [None])

    def add(
        self,
        following: tuple[int, ...],
        letters: frozenset[str] | None = None,
        condition: type[_Start] | type[_End] | None = None,
    ) -> int:
        """Add a state. Takes: the states that follow it; the letters that it consumes, None for
        none; the condition under which it may be passed. Gives: its number.
        """
        if len(self.letters) >= MAX_STATES:
            raise InvalidPatternError(
                f"the pattern is too large: it comes to more than {MAX_STATES} states"
            )
        self.letters.append(letters)
        self.following.append(following)
        self.condition.append(condition)
        return len(self.letters) - 1

    def build(self, node: _Node, then: int) -> int:
        """Add the states of a part that is followed by the state `then`. Gives its first state."""
        match node:
            case _One(letters):
                return self.add((then,), letters)
            case _Sequence(parts):
                for part in reversed(parts):
                    then = self.build(part, then)
                return then
            case _Choice(options):
                return self.add(tuple([self.build(option, then) for option in options]))
            case _Repeat(part, lowest, highest):
                return self._build_repeat(part, lowest, highest, then)
            case _Start() | _End():
                return self.add((then,), condition=type(node))

    def _build_repeat(self, part: _Node, lowest: int, highest: int | None, then: int) -> int:
        """Add the states of a repetition: the required copies, then optional ones or a loop."""
        if highest is None:
            loop = self.add(())
            self.following[loop] = (self.build(part, loop), then)
            then = loop
        else:
            end = then
            for _ in range(highest - lowest):
                then = self.add((self.build(part, then), end))
        for _ in range(lowest):
            then = self.build(part, then)
        return then

    def closure(self, states: tuple[int, ...], *, is_start: bool, is_end: bool) -> _States:
        """The states that are reached without reading a character. Only states that accept, or that
        wait for a character or for the end of the name, are included.
        """
        seen, waiting = set(states), list(states)
        while waiting:
            state = waiting.pop()
            if self.letters[state] is not None:
                continue
            condition = self.condition[state]
            if (condition is _Start and not is_start) or (condition is _End and not is_end):
                continue
            for following in self.following[state]:
                if following not in seen:
                    seen.add(following)
                    waiting.append(following)
        return frozenset(seen)


class TopicPattern:
    """A pattern of topic names.

    Takes:  text, in RE2's syntax; letters, the characters that names may have. Other characters
            match only if they are literals in the pattern.
    Raises: InvalidPatternError.
    """

    def __init__(self, text: str, letters: frozenset[str] = LETTERS) -> None:
        self.text = text
        self._automaton = _Automaton()
        self._work = 0
        try:
            self._first = self._automaton.build(_Parser(text, letters).parse(), _ACCEPT)
        except RecursionError as error:
            raise InvalidPatternError("the pattern is nested too deep") from error
        self._forget()

    def _forget(self) -> None:
        """Clear the cache of steps; only the start state stays."""
        start = self._automaton.closure((self._first,), is_start=True, is_end=False)
        self._steps: dict[_States, dict[str, _States]] = {start: {}}
        self._accepts: dict[_States, bool] = {}
        self._states = {start: start}
        self._start = start
        self._cached_count = len(start)

    @property
    def state_count(self) -> int:
        """The number of states of the automaton, which measures the size of the pattern."""
        return len(self._automaton.letters)

    def takes_many_steps(self) -> bool:
        """Whether the longest name may take more than MOST_STEPS, if each of its letters matches
        wherever a letter is waited for. A list of names does not: each letter leaves few of them.
        """
        if 2 * LONGEST_NAME * self.state_count <= MOST_STEPS:
            return False
        automaton, states, steps = self._automaton, self._start, 0
        for _ in range(LONGEST_NAME):
            reached = {
                following
                for state in states
                if automaton.letters[state] is not None
                for following in automaton.following[state]
            }
            states, former = automaton.closure(tuple(reached), is_start=False, is_end=False), states
            steps += len(former) + len(states)
            if steps > MOST_STEPS:
                return True
        return False

    def matches(self, name: str) -> bool:
        """Whether the whole name matches. The time is linear in its length once the states are
        cached.
        """
        if not name:
            states = self._automaton.closure((self._first,), is_start=True, is_end=True)
            return _ACCEPT in states
        states = self._start
        for letter in name:
            following = self._steps.get(states, _NO_STEPS).get(letter)
            states = self._next(states, letter) if following is None else following
            if not states:
                return False
        return self._is_accepted(states)

    def matching(self, names: Iterable[str]) -> Generator[None, None, tuple[str, ...]]:
        """Find the matching names. The generator yields whenever `WORK_BETWEEN_PAUSES` states were
        visited.

        If states are not cached, each character of a name costs as many steps as the pattern has
        states.
        """
        found = []
        for name in names:
            states = self._start
            self._work += len(name) // 4
            for letter in name:
                following = self._steps.get(states, _NO_STEPS).get(letter)
                states = self._next(states, letter) if following is None else following
                if self._work >= WORK_BETWEEN_PAUSES:
                    self._work = 0
                    yield
                if not states:
                    break
            if states and self._is_accepted(states):
                found.append(name)
        return tuple(found)

    def _is_accepted(self, states: _States) -> bool:
        """Whether a name that led to these states is accepted if it ends there."""
        accepts = self._accepts.get(states)
        if accepts is None:
            end = self._automaton.closure(tuple(states), is_start=False, is_end=True)
            accepts = self._accepts[states] = _ACCEPT in end
        return accepts

    def _next(self, states: _States, letter: str) -> _States:
        """The states after a character, which are cached."""
        following = self._step(states, letter)
        self._steps.setdefault(states, {})[letter] = following
        self._work += len(states) + len(following)
        if self._cached_count > MAX_CACHED_STATES:
            self._forget()
        return following

    def _step(self, states: _States, letter: str) -> _States:
        """The states after a letter, computed without the cache of steps."""
        automaton = self._automaton
        reached = [
            following
            for state in sorted(states)
            if (letters := automaton.letters[state]) is not None and letter in letters
            for following in automaton.following[state]
        ]
        following = automaton.closure(tuple(reached), is_start=False, is_end=False)
        known = self._states.get(following)
        self._cached_count += 1 if known is not None else len(following) + 1
        return self._states.setdefault(following, following)


class PatternReader:
    """Compiles patterns, and caches the last hundred, or fewer if they are large.

    For each text the cache has the pattern, or the error if it is invalid.
    """

    def __init__(self) -> None:
        self._made: dict[str, TopicPattern | InvalidPatternError] = {}
        self._kept_states = self._kept_letters = 0

    def __call__(self, text: str) -> TopicPattern:
        """The compiled pattern of a text. Raises: InvalidPatternError."""
        made = self._made.pop(text, None)
        if made is None:
            self.keep(text, read_pattern(text))
            made = self._made.pop(text)
        self._made[text] = made
        if isinstance(made, InvalidPatternError):
            raise InvalidPatternError(*made.args)
        return made

    def takes_long(self, text: str) -> bool:
        """Whether compiling the pattern would delay other requests."""
        return text not in self._made and (len(text) > LONGEST_AT_ONCE or "{" in text)

    def keep(self, text: str, made: TopicPattern | InvalidPatternError) -> None:
        """Cache the result of `read_pattern`, and remove the oldest results to make room."""
        self._forget(text)
        self._made[text] = made
        self._kept_states += _state_count(made)
        self._kept_letters += len(text)
        while len(self._made) > 1 and (
            len(self._made) > MOST_KEPT
            or self._kept_states > MAX_KEPT_STATES
            or self._kept_letters > MOST_KEPT_LETTERS
        ):
            self._forget(next(iter(self._made)))

    def _forget(self, text: str) -> None:
        """Remove a cached result."""
        made = self._made.pop(text, None)
        if made is not None:
            self._kept_states -= _state_count(made)
            self._kept_letters -= len(text)


def _state_count(made: TopicPattern | InvalidPatternError) -> int:
    return made.state_count if isinstance(made, TopicPattern) else 0


def read_pattern(text: str) -> TopicPattern | InvalidPatternError:
    """The compiled pattern, or the error if the text is invalid."""
    try:
        return TopicPattern(text)
    except InvalidPatternError as error:
        return detached(error)


def read_client_pattern(text: str) -> TopicPattern | InvalidPatternError:
    """The compiled pattern of a request, or the error if the text is invalid, or if matching it
    would take too long. A pattern in the log has been accepted, by another version or another
    broker, and is read by `read_pattern`.
    """
    made = read_pattern(text)
    if isinstance(made, TopicPattern) and made.takes_many_steps():
        return InvalidPatternError(
            f"the pattern is too large: one name may take more than {MOST_STEPS} steps"
        )
    return made
