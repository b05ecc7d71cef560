"""Which functions can be handlers: none whose call runs nothing, as that of a generator."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from barnabas.exactly_once.errors import ConfigurationError

Anything = Callable[..., Any]


def is_async(handler: Anything) -> bool:
    """Whether a call has to be awaited: of `async def`, or of an object with such a `__call__`."""
    return inspect.iscoroutinefunction(handler) or (
        not inspect.isroutine(handler) and inspect.iscoroutinefunction(type(handler).__call__)
    )


def check_handler(handler: Anything, former: Anything | None, *, may_be_async: bool) -> None:
    """Raises: ConfigurationError if there is a handler already, or if this one would not run."""
    if former is not None:
        raise ConfigurationError("there is a handler already")
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise ConfigurationError(
            "the handler is a generator, and a call of it does nothing: write outputs with "
            "out.send, and not with yield"
        )
    if is_async(handler) and not may_be_async:
        raise ConfigurationError(
            "the handler is `async def`, which only a Pipeline's handler can be: use a plain "
            "function"
        )


def check_result(result: object) -> None:
    """Takes:  result, what a handler has returned that is called without `await`.

    Raises: ConfigurationError if nothing of it has run.
    """
    if inspect.iscoroutine(result):
        result.close()  # nobody awaits it, and Python would warn
    elif not (inspect.isawaitable(result) or inspect.isgenerator(result)):
        return
    raise ConfigurationError(
        f"the handler returned a {type(result).__name__}, which is not awaited: its records would "
        "be skipped. Where a decorator wraps an `async def` handler, its wrapper has to be `async "
        "def`, too"
    )
