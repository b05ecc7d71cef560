"""The code of one function of `protocol/internal_records/`, as expressions and statements."""

from __future__ import annotations

from itertools import groupby

from barnabas.protocol.generator.schema import Field

UUID, NO_TAGS = "16s", "x"
SIZES = {"b": 1, "h": 2, "H": 2, "i": 4, "q": 8, "d": 8, "?": 1, UUID: 16, NO_TAGS: 1}
_NAMES = {
    "b": "INT8",
    "h": "INT16",
    "H": "UINT16",
    "i": "INT32",
    "q": "INT64",
    "d": "FLOAT64",
    "?": "BOOL",
    UUID: "UUID",
    NO_TAGS: "NO_TAGS",
}
_MOST_ADDED = 7  # the most pieces that are added one by one; more are joined


class Pieces:
    """The bytes of a record or a part, as expressions. lines: the statements before them."""

    def __init__(self, formats: dict[str, str]) -> None:
        self.lines: list[str] = []
        self._pieces: list[str] = []
        self._formats = formats
        self._numbers: list[tuple[str, str | None]] = []

    def number(self, letter: str, value: str | None) -> None:
        """Add a number, which is packed together with the numbers around it."""
        self._numbers.append((letter, value))

    def length(self, one: Field, length: str, letter: str, compact: bool) -> None:
        """Add the length or the count of a field."""
        null = f" if {one.name} is not None else "
        if not compact:
            self.number(letter, f"{length}{null}-1" if one.may_be_null else length)
        else:
            number = f"{length} + 1"
            self.add(f"encoded_uvarint({f'{number}{null}0' if one.may_be_null else number})")

    def add(self, piece: str) -> None:
        """Add bytes."""
        self.flush()
        self._pieces.append(piece)

    def flush(self) -> None:
        """Pack the numbers that have been added."""
        if not self._numbers:
            return
        letters = [letter for letter, _ in self._numbers]
        values = [value for _, value in self._numbers if value is not None]
        self._numbers = []
        if not values:  # no tags, without a number before them
            self._pieces.append(r'b"\0"')
        else:
            self._pieces.append(
                f"{format_name(letters, 'pack', self._formats)}({', '.join(values)})"
            )

    def expression(self) -> str:
        """The expression for all bytes."""
        self.flush()
        if len(self._pieces) > _MOST_ADDED:
            return f'b"".join(({", ".join(self._pieces)}))'
        return " + ".join(self._pieces)


class Reading:
    """The statements that read a record or a part.

    Takes: start, the position of the first field; None if it is in the variable `at`.
    """

    def __init__(self, formats: dict[str, str], start: int | None = None) -> None:
        self.lines: list[str] = []
        self._formats = formats
        self._numbers: list[tuple[str, str]] = []
        self._after: list[str] = []
        self._start = start
        # the line that checks the end of the last string; not needed if a number follows
        self._check = -1

    def number(self, letter: str, target: str, after: str = "") -> None:
        """Read a number, together with the numbers around it. Takes: after, a statement that uses
        it.
        """
        self._numbers.append((letter, target))
        if after:
            self._after.append(after)

    def flush(self) -> None:
        """Unpack the numbers that have been added."""
        if not self._numbers:
            self._check = -1
            if self._start is not None:
                self.lines.append(f"at = {self._start}")
                self._start = None
            return
        if self._check >= 0:
            # unpack_from refuses a position beyond the end
            self.lines[self._check] = self.lines[self._check].replace(" or end > len(data)", "")
            if self.lines[self._check].strip() == "if end > len(data):":
                del self.lines[self._check : self._check + 2]
            self._check = -1
        letters = [letter for letter, _ in self._numbers]
        names = ", ".join(name for _, name in self._numbers)
        target = f"({names},)" if len(letters) == 1 else names
        unpack = format_name(letters, "unpack_from", self._formats)
        size = sum(SIZES[letter] for letter in letters)
        if self._start is None:
            self.lines += [f"{target} = {unpack}(data, at)", f"at += {size}"]
        else:
            self.lines += [
                f"{target} = {unpack}(data, {self._start})",
                f"at = {self._start + size}",
            ]
            self._start = None
        self.lines += self._after
        self._numbers, self._after = [], []

    def sized(self, one: Field) -> None:
        """Read a string or bytes with the length before them, in a version that is not flexible."""
        name, size = one.name, f"{one.name}_size"
        self.number("h" if one.type == "string" else "i", size)
        self.flush()
        value = "data[at:end]" + (".decode()" if one.type == "string" else "")
        if one.may_be_null:
            self.lines += [f"{name} = None", f"if {size} >= 0:", f"    end = at + {size}"]
            self._check = len(self.lines)
            self.lines += ["    if end > len(data):", f"        refuse_length({size})"]
            self.lines += [f"    {name} = {value}", "    at = end"]
        else:
            self.lines.append(f"end = at + {size}")
            self._check = len(self.lines)
            self.lines += [f"if {size} < 0 or end > len(data):", f"    refuse_length({size})"]
            self.lines += [f"{name} = {value}", "at = end"]


def format_name(letters: list[str], method: str, formats: dict[str, str]) -> str:
    """The name of the constant for these letters: a `struct.Struct`, or a method of one."""
    runs = [(letter, len(list(group))) for letter, group in groupby(letters)]
    name = "_".join(
        _NAMES[letter] + (f"_{count}_TIMES" if count > 1 else "") for letter, count in runs
    )
    name = f"_{method.removesuffix('_from').upper()}{'_' * bool(method)}{name}"
    formats[name] = f'struct.Struct(">{"".join(letters)}")' + (f".{method}" if method else "")
    return name
