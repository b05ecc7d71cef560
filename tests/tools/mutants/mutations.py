"""The mutants of a module, made by mutmut's operators and by further ones for mistakes that are
typical of a log.

mutmut's operators change values: a comparison, a sum, a number. The typical mistakes in a log are
different: a missing step, two steps in the wrong order, an unchecked condition. `OWN_OPERATORS`
make these.

Two of mutmut's operators are left out. They put None in place of an argument or an assigned value,
made half of all mutants, and found nothing, since mypy --strict reports such mistakes. Operators
that change strings are left out as well. Only code that runs in a function call is changed, but no
assertions, log calls, annotations, decorators or defaults.
"""

from __future__ import annotations

import difflib
import hashlib
import itertools
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import libcst as cst
import libcst.matchers as m
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators

Operator = Callable[[Any], Iterable[cst.CSTNode]]

LEFT_OUT = (
    "operator_arg_removal",
    "operator_assignment",
    "operator_string",
    "operator_dict_arguments",
)
_LOGGED = m.Call(func=m.Attribute(value=m.Name("logger")))
_KAFKA_ERROR = m.Raise(exc=m.Call(func=m.Name("KafkaError")))
_STEP = m.SimpleStatementLine(body=[m.Expr(m.Call())])
_LASTING = m.SimpleStatementLine(
    body=[
        m.Assign(targets=[m.AssignTarget(m.Attribute() | m.Subscript())])
        | m.AugAssign()
        | m.Raise()
        | m.Del()
    ]
)
_RAISING = m.SimpleStatementLine(body=[m.Raise()])
_NOT_CALLED = ("len", "isinstance", "cast", "super")
_NO_FUNCTIONS = ("__repr__", "__str__")


class Mutant(NamedTuple):
    """One change of one function.

    `line` is the number of the changed line, from 1. `first_line` is the first line of the
    outermost function around the change. `operator` is the name of the mutation operator. `key`
    identifies the change, and stays the same when lines move.
    """

    module: str
    function: str
    line: int
    first_line: int
    operator: str
    old: str
    new: str
    key: str

    @property
    def is_own(self) -> bool:
        return self.operator in OWN_NAMES


class _Site(NamedTuple):
    """A change as positions in the source. `first_line` and `last_line` are those of the enclosing
    statement.
    """

    start: int
    end: int
    replacement: str
    first_line: int
    last_line: int


class MutatedModule:
    """A module and all its mutants. `source_of` returns the module's whole text with one mutant in
    it.
    """

    def __init__(self, root: Path, module: str, is_wanted: Callable[[str, str], bool]) -> None:
        self.module = module
        self.source = (root / module).read_text()
        self.mutants: list[Mutant] = []
        self._sites: dict[str, _Site] = {}
        self._line_starts = [0]
        for line in self.source.splitlines(keepends=True):
            self._line_starts.append(self._line_starts[-1] + len(line))
        self._is_wanted = is_wanted
        wrapper = MetadataWrapper(cst.parse_module(self.source), unsafe_skip_copy=True)
        wrapper.visit(_Finder(self))

    def source_of(self, mutant: Mutant) -> str:
        site = self._sites[mutant.key]
        return self.source[: site.start] + site.replacement + self.source[site.end :]

    def lines_of(self, mutant: Mutant) -> range:
        """The line numbers of the changed statement, from 1."""
        site = self._sites[mutant.key]
        return range(
            min(mutant.line, site.first_line),
            max(bisect_right(self._line_starts, site.end), site.last_line) + 1,
        )

    def offset(self, position: Any) -> int:
        return self._line_starts[position.line - 1] + int(position.column)

    def is_wanted(self, function: str) -> bool:
        return self._is_wanted(self.module, function)

    def add(
        self,
        function: str,
        first_line: int,
        operator: str,
        span: tuple[int, int],
        replacement: str,
        lines: tuple[int, int] | None,
    ) -> None:
        """Add a mutant.

        Takes: span, the start and end of the replaced text; lines, the line numbers of the
        enclosing statement.
        """
        start, end = span
        line = bisect_right(self._line_starts, start)
        first = self._line_starts[line - 1]
        last = self.source.find("\n", end)
        old, new = (
            stripped(self.source[first:last]),
            stripped(self.source[first:start] + replacement + self.source[end:last]),
        )
        if old == new:
            return
        number = 0
        while (key := key_of(self.module, function, old, new, number)) in self._sites:
            number += 1
        self._sites[key] = _Site(start, end, replacement, *(lines or (line, line)))
        self.mutants.append(
            Mutant(self.module, function, line, first_line, operator, old, new, key)
        )


def key_of(module: str, function: str, old: str, new: str, number: int) -> str:
    """The key of a mutant.

    Takes: number, which occurrence it is, if the function has the lines several times.
    """
    text = f"{number} {module} {function}\n{old}\n{new}"
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def change_of(root: Path, module: str, function: str, operator: str, number: int) -> str:
    """The text of a module with one change of a function.

    Takes: number, which of the operator's changes in the function it is, from 1.
    Raises: ValueError if there is no such change.
    """
    mutated = MutatedModule(root, module, lambda _, name: name == function)
    mutants = [mutant for mutant in mutated.mutants if mutant.operator == operator]
    if not 1 <= number <= len(mutants):
        raise ValueError(f"{operator} makes {len(mutants)} changes in {function}")
    return mutated.source_of(mutants[number - 1])


def stripped(text: str) -> str:
    """The text's lines without their indentation."""
    return "\n".join(line.strip() for line in text.splitlines())


def diff_of(mutant: Mutant) -> Iterator[str]:
    """The change as lines that begin with - or +."""
    for line in difflib.ndiff(mutant.old.splitlines(), mutant.new.splitlines()):
        if line[0] in "-+":
            yield line


# --- our operators ------------------------------------------------------------------------------


def step_left_out(node: cst.SimpleStatementLine) -> Iterable[cst.CSTNode]:
    """Omit a step: `self.write(x)`, `self.end = x`, `del …` or `raise …`."""
    if m.matches(node, _STEP | _LASTING) and not m.matches(
        node, m.SimpleStatementLine(body=[m.Expr(_LOGGED)])
    ):
        yield node.with_changes(body=[cst.Pass()], leading_lines=())


def condition_forced(node: cst.If | cst.While | cst.CompIf) -> Iterable[cst.CSTNode]:
    """Always take a branch, or never."""
    if not isinstance(node, cst.While):
        yield node.test, cst.Name("True")  # type: ignore[misc]
    if not isinstance(node, cst.CompIf):
        yield node.test, cst.Name("False")  # type: ignore[misc]


def operand_dropped(node: cst.BooleanOperation) -> Iterable[cst.CSTNode]:
    """Check only one operand of `a and b` or `a or b`."""
    yield node.left
    yield node.right


def extreme_swapped(node: cst.Call) -> Iterable[cst.CSTNode]:
    """Swap min and max, any and all."""
    swapped = {"min": "max", "max": "min", "any": "all", "all": "any"}
    if isinstance(node.func, cst.Name) and node.func.value in swapped:
        yield node.with_changes(func=cst.Name(swapped[node.func.value]))


def keyword_left_out(node: cst.Call) -> Iterable[cst.CSTNode]:
    """Omit a keyword argument. If it has a default, no type checker notices this."""
    for number, argument in enumerate(node.args):
        if argument.keyword is not None:
            yield node.with_changes(args=[*node.args[:number], *node.args[number + 1 :]])


OWN_OPERATORS: tuple[tuple[type | tuple[type, ...], Operator], ...] = (
    (cst.SimpleStatementLine, step_left_out),
    ((cst.If, cst.While, cst.CompIf), condition_forced),
    (cst.BooleanOperation, operand_dropped),
    (cst.Call, extreme_swapped),
    (cst.Call, keyword_left_out),
)
SWAPPED = "steps_swapped"
OWN_NAMES = frozenset({SWAPPED, *(operator.__name__ for _, operator in OWN_OPERATORS)})
_OPERATORS: list[tuple[Any, Operator]] = [
    *OWN_OPERATORS,
    *(
        (kind, operator)
        for kind, operator in mutation_operators
        if operator.__name__ not in LEFT_OUT
    ),
]


def _may_swap(step: cst.CSTNode) -> bool:
    """Whether swapping this step with a neighbour makes a sensible mutant. The step must not raise
    an error or log a line.
    """
    return (
        m.matches(step, _STEP | _LASTING)
        and not m.matches(step, _RAISING)
        and not m.findall(step, _LOGGED)
    )


class _Finder(cst.CSTVisitor):
    """Walks a module and collects its mutants. `_scope` has the names of the enclosing classes and
    functions, and `_outermost` the name of the outermost function.
    """

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, into: MutatedModule) -> None:
        super().__init__()
        self._into = into
        self._scope: list[str] = []
        self._outermost: tuple[str, int] | None = None
        self._statement: tuple[int, int] | None = None

    def visit_SimpleStatementLine(self, node: cst.SimpleStatementLine) -> None:
        self._statement = self._start(node).line, self._end(node).line

    def leave_SimpleStatementLine(self, original_node: cst.SimpleStatementLine) -> None:
        self._statement = None

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        self._scope.append(node.name.value)

    def leave_ClassDef(self, original_node: cst.ClassDef) -> None:
        self._scope.pop()

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        """Visit only the bodies of target functions. An inner function counts as part of the
        outermost one.
        """
        if node.name.value in _NO_FUNCTIONS:
            return False
        outer = self._outermost
        if outer is None:
            self._outermost = ".".join([*self._scope, node.name.value]), self._start(node).line
        if self._outermost is not None and self._into.is_wanted(self._outermost[0]):
            node.body.visit(self)
        self._outermost = outer
        return False  # annotations, defaults and decorators are not visited

    def visit_Annotation(self, node: cst.Annotation) -> bool:
        return False

    def visit_Assert(self, node: cst.Assert) -> bool:
        return False

    def visit_FormattedString(self, node: cst.FormattedString) -> bool:
        return False

    def visit_Raise(self, node: cst.Raise) -> bool:
        return m.matches(node, _KAFKA_ERROR)

    def visit_Call(self, node: cst.Call) -> bool:
        """Skip calls that only log or that change nothing."""
        return not m.matches(node, _LOGGED) and not (
            isinstance(node.func, cst.Name) and node.func.value in _NOT_CALLED
        )

    def visit_IndentedBlock(self, node: cst.IndentedBlock) -> None:
        """Add, for each pair of neighbouring steps, the mutant in which they are swapped."""
        if self._outermost is None:
            return
        steps = list(node.body)
        for first, second in itertools.pairwise(steps):
            pair = first, second
            if any(m.matches(step, _STEP) for step in pair) and all(
                _may_swap(step) for step in pair
            ):
                span = self._offset(self._start(first)), self._offset(self._end(second))
                between = self._into.source[
                    self._offset(self._end(first)) : self._offset(self._start(second))
                ]
                self._add(SWAPPED, span, self._text(second) + between + self._text(first))

    def on_visit(self, node: cst.CSTNode) -> bool:
        goes_on = super().on_visit(node)
        if self._outermost is None or isinstance(node, cst.FunctionDef) or not goes_on:
            return goes_on
        for kind, operator in _OPERATORS:
            if isinstance(node, kind):
                for changed in operator(node):
                    self._mutate(operator.__name__, node, changed)
        return goes_on

    def _mutate(self, name: str, node: cst.CSTNode, changed: Any) -> None:
        """Add the mutant in which the node's text is replaced."""
        if isinstance(changed, tuple):
            node, changed = changed
        old, span = (
            self._text(node),
            (self._offset(self._start(node)), self._offset(self._end(node))),
        )
        module = cst.Module([])
        rendered = module.code_for_node(node).strip()
        if rendered == old.strip():
            new = module.code_for_node(changed).strip()
        elif isinstance(node, cst.SimpleStatementLine):
            new = "pass"
        else:
            return
        if isinstance(node, cst.BooleanOperation) and name == operand_dropped.__name__:
            new = f"({new})"
        self._add(name, span, new)

    def _add(self, name: str, span: tuple[int, int], new: str) -> None:
        assert self._outermost is not None
        self._into.add(*self._outermost, name, span, new, self._statement)

    def _start(self, node: cst.CSTNode) -> Any:
        return self.get_metadata(PositionProvider, node).start

    def _end(self, node: cst.CSTNode) -> Any:
        return self.get_metadata(PositionProvider, node).end

    def _offset(self, position: Any) -> int:
        return self._into.offset(position)

    def _text(self, node: cst.CSTNode) -> str:
        return self._into.source[self._offset(self._start(node)) : self._offset(self._end(node))]
