"""Faults: rules that change the handling of requests, and the check of whether a rule applies to a
request.

The module does no I/O: requests go in, actions come out. A rule has one action:

    action          the request                        its response
    --------------  ---------------------------------  -----------------------------------
    delay           handled `ms` later                 sent
    delay_answer    handled                            sent `ms` later
    hold            handled when it is released        sent
    drop_answer     handled                            not sent; the connection stays open
    close_before    not handled; the connection ends   -
    close_after     handled                            not sent; the connection ends
    cut             handled                            its first half; the connection ends
    error           not handled                        a response with the error `code`
    twice           handled twice                      the second response is sent
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from barnabas.protocol.errors import Code
from barnabas.test_control.observed import ObservedRequest, api_named


class Action(Enum):
    """The action of a rule; see the table in the module docstring."""

    DELAY = "delay"
    DELAY_ANSWER = "delay_answer"
    HOLD = "hold"
    DROP_ANSWER = "drop_answer"
    CLOSE_BEFORE = "close_before"
    CLOSE_AFTER = "close_after"
    CUT = "cut"
    ERROR = "error"
    TWICE = "twice"


@dataclass(slots=True)
class Fault:
    """One rule. A field that is None matches every request.

    api: the API's name. connection: the connection's number in the journal. topic, partition,
    group, transactional_id: a name or number that the request contains. nth: the rule applies only
    to the nth matching request, from 1. times: the maximum number of requests. chance: the
    probability for each matching request, drawn by `seed`. ms: the duration of a delay. code: the
    code of an error. met: the number of requests to which the rule was applied.
    """

    action: Action
    api: str | None = None
    version: int | None = None
    client_id: str | None = None
    connection: int | None = None
    topic: str | None = None
    partition: int | None = None
    group: str | None = None
    transactional_id: str | None = None
    nth: int | None = None
    times: int | None = None
    chance: float = 1.0
    seed: int = 0
    ms: int = 0
    code: Code | None = None
    number: int = 0
    fitting: int = 0
    met: int = 0
    _random: random.Random = field(default_factory=random.Random, repr=False)

    def is_met_by(self, request: ObservedRequest, connection: int) -> bool:
        """Whether the rule applies to a request. If so, the request is counted."""
        if not self._fits(request, connection):
            return False
        self.fitting += 1
        if self.nth is not None and self.fitting != self.nth:
            return False
        if self.times is not None and self.met >= self.times:
            return False
        if self.chance < 1.0 and self._random.random() >= self.chance:
            return False
        self.met += 1
        return True

    def _fits(self, request: ObservedRequest, connection: int) -> bool:
        """Whether all fields of the rule match the request; a field that is None matches
        everything. nth, times and chance are not checked here.
        """
        if self.topic is None:
            named = self.partition is None or any(
                self.partition in partitions for partitions in request.topics.values()
            )
        else:
            named = self.topic in request.topics and (
                self.partition is None or self.partition in request.topics[self.topic]
            )
        return (
            named
            and self.api in (None, request.api.name)
            and self.version in (None, request.version)
            and self.client_id in (None, request.client_id)
            and self.connection in (None, connection)
            and (self.group is None or self.group in request.groups)
            and (
                self.transactional_id is None or self.transactional_id in request.transactional_ids
            )
        )

    def as_values(self) -> dict[str, Any]:
        """The rule as plain values, without the fields that are None."""
        names = (
            "api", "version", "client_id", "connection", "topic", "partition", "group",
            "transactional_id", "nth", "times",
        )  # fmt: skip
        values: dict[str, Any] = {"id": self.number, "action": self.action.value, "met": self.met}
        values |= {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        if self.chance < 1.0:
            values |= {"chance": self.chance, "seed": self.seed}
        if self.ms:
            values["ms"] = self.ms
        if self.code is not None:
            values["code"] = self.code.name
        return values


_NUMBERS = ("version", "connection", "partition", "nth", "times", "seed", "ms")
_TEXTS = ("client_id", "topic", "group", "transactional_id")


def fault_of(values: Mapping[str, Any]) -> Fault:
    """A rule from plain values. Raises: ValueError with an explanation."""
    values = dict(values)
    actions = ", ".join(action.value for action in Action)
    try:
        fault = Fault(Action(values.pop("action", None)))
    except ValueError:
        raise ValueError(f"`action` has to be one of: {actions}") from None
    if (api := values.pop("api", None)) is not None:
        fault.api = api_named(str(api)).name
    if (code := values.pop("code", None)) is not None:
        fault.code = _code_of(code)
    chance = values.pop("chance", 1.0)
    if isinstance(chance, bool) or not isinstance(chance, int | float) or not 0 <= chance <= 1:
        raise ValueError(f"`chance` has to be a number from 0 to 1, not {chance!r}")
    fault.chance = float(chance)
    for name, value in values.items():
        kind = int if name in _NUMBERS else str if name in _TEXTS else None
        if kind is None:
            raise ValueError(
                f"a fault has no {name!r}; it has action, api, code, chance, "
                f"{', '.join((*_NUMBERS, *_TEXTS))}"
            )
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            raise ValueError(f"`{name}` has to be {kind.__name__}, not {value!r}")
        setattr(fault, name, value)
    return _checked(fault)


def _checked(fault: Fault) -> Fault:
    """Check that the fields of a rule go together, and seed its random numbers. Raises:
    ValueError.
    """
    if fault.action in (Action.DELAY, Action.DELAY_ANSWER) and fault.ms <= 0:
        raise ValueError(f"`{fault.action.value}` needs `ms`, a number of milliseconds")
    if (fault.action is Action.ERROR) != (fault.code is not None):
        raise ValueError(
            "`error` needs `code`, and no other action has one: NOT_COORDINATOR, for example, or 16"
        )
    if fault.action is Action.ERROR and fault.api is None:
        raise ValueError("`error` needs `api`: the requests whose answers get the code")
    for name in ("nth", "times"):
        value = getattr(fault, name)
        if value is not None and value < 1:
            raise ValueError(
                f"`{name}` counts from 1: with {value} the fault would affect no request"
            )
    if fault.ms and fault.action not in (Action.DELAY, Action.DELAY_ANSWER):
        raise ValueError(f"`{fault.action.value}` takes no `ms`: only delay and delay_answer do")
    if fault.api is not None and fault.version is not None:
        api = api_named(fault.api)
        if not api.min_version <= fault.version <= api.max_version:
            raise ValueError(
                f"{api.name} has the versions {api.min_version} to {api.max_version}, not "
                f"{fault.version}"
            )
    fault._random = random.Random(fault.seed)
    return fault


def _code_of(value: object) -> Code:
    """An error code by its name or number. Raises: ValueError."""
    try:
        if isinstance(value, str) and not value.lstrip("-").isdigit():
            return Code[value.upper()]
        return Code(int(str(value)))
    except (KeyError, ValueError):
        raise ValueError(f"{value!r} is not an error code of Kafka's") from None


class FaultTable:
    """The active rules, in the order in which they were added."""

    def __init__(self) -> None:
        self._faults: dict[int, Fault] = {}
        self._next = 1

    def __bool__(self) -> bool:
        return bool(self._faults)

    def __iter__(self) -> Any:
        return iter(list(self._faults.values()))

    def add(self, fault: Fault) -> Fault:
        """Add a rule, which gets a new number. It applies from the next request on."""
        fault.number, self._next = self._next, self._next + 1
        self._faults[fault.number] = fault
        return fault

    def __getitem__(self, number: int) -> Fault:
        """The fault with the given number. Raises: KeyError."""
        try:
            return self._faults[number]
        except KeyError:
            raise KeyError(f"fault {number}: it was removed") from None

    def remove(self, number: int) -> Fault:
        """Remove a rule. Raises: KeyError if no rule has that number."""
        return self._faults.pop(number)

    def clear(self) -> list[Fault]:
        """Remove all rules. Gives: the removed rules."""
        faults = list(self._faults.values())
        self._faults.clear()
        return faults

    def met_by(self, request: ObservedRequest, connection: int) -> list[Fault]:
        """The rules that apply to a request."""
        return [fault for fault in self._faults.values() if fault.is_met_by(request, connection)]
