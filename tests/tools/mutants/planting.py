"""Plants a mutant in a process that has loaded the product: the function gets the changed code.

The changed module is compiled, and the existing function object gets the new `__code__`. No module
is imported again and no file is written, so planting takes milliseconds. The change applies at once
to bound methods, properties and imported names as well. It lasts until the process ends, so the
caller forks.
"""

from __future__ import annotations

import gc
import importlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import NamedTuple


class UnfitMutant(Exception):
    """The change is not valid Python, or the function to change does not exist."""


class _Place(NamedTuple):
    path: str
    name: str
    first_line: int


class Functions:
    """All functions of some loaded modules, by file and line. Create this object before
    gc.freeze(). The constructor unfreezes the objects that are already frozen, because it cannot
    find functions among frozen objects.
    """

    def __init__(self, root: Path, modules: Iterable[str]) -> None:
        self._root = root.resolve()
        for module in modules:
            # Import every module, since the core loads its handlers only when they are needed.
            path = module.removesuffix(".py").removeprefix("barnabas/")
            importlib.import_module("barnabas." + path.replace("/", "."))
        self._functions: dict[_Place, list[FunctionType]] = {}
        gc.unfreeze()  # pytest freezes all objects after it has collected the tests
        for each in gc.get_objects():
            # not isinstance: that follows weak proxies, whose object may be gone
            if type(each) is FunctionType and each.__code__.co_filename.startswith(str(root)):
                code = each.__code__
                # barnabas/storage is a symbolic link.
                path = os.path.realpath(code.co_filename)
                self._functions.setdefault(
                    _Place(path, code.co_name, code.co_firstlineno), []
                ).append(each)

    def plant(self, module: str, function: str, source: str) -> None:
        """Replace a function's code by that of the module's changed text.

        Takes: source, the text with a change inside the function, so that its first line is where
               it was.
        Raises: UnfitMutant if this is impossible.
        """
        path = str(self._root / module)
        name = function.rpartition(".")[2]
        try:
            changed = compile(source, path, "exec")
        except SyntaxError as error:
            raise UnfitMutant(str(error)) from error
        codes = [code for code in _codes_in(changed) if code.co_qualname == function]
        functions = [
            each
            for code in codes
            for each in self._functions.get(_Place(path, name, code.co_firstlineno), ())
        ]
        if not functions:
            raise UnfitMutant(f"{function} is not loaded")
        by_line = {code.co_firstlineno: code for code in codes}
        for each in functions:
            try:
                each.__code__ = by_line[each.__code__.co_firstlineno]
            except ValueError as error:  # the mutant has a different number of free variables
                raise UnfitMutant(str(error)) from error


def _codes_in(code: CodeType) -> Iterator[CodeType]:
    """All code objects inside a code object."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes_in(constant)
