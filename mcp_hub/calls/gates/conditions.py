"""Conditions over a call: its arguments, principal, claims, client and hints, by globs. Pure.

A condition is true, false, or unknown (None), where the value is missing, of another type, or said twice. A record is
*and*, a list is *or*. `allow_if` needs a true condition; `deny_if` and `ask` are met by one that is not false.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from mcp_hub.globs import any_matches
from mcp_hub.types import RawJson

Test = Callable[["CallFacts"], bool | None]
"""A compiled condition."""
Hints = Callable[[], Mapping[str, bool] | None]
"""The hints of a tool by their MCP names."""
_Check = Callable[[object], bool | None]
_MISSING: Final = object()
_TWICE: Final = object()
"""An object with two members of one name: servers differ in which one they take."""


class CallFacts:
    """The values of one call that conditions test. `claims` are JSON. Without hints the tool is not known."""

    def __init__(
        self,
        arguments: RawJson,
        principal: str,
        client: str,
        claims: str,
        hints: Callable[[], Mapping[str, bool] | None],
    ) -> None:
        self._raw = arguments
        self.principal = principal
        self.client = client or _MISSING
        self._claims = claims
        self._hints = hints
        self._read: object = _MISSING

    @property
    def arguments(self) -> object:
        if self._read is _MISSING:
            self._read = _decoded(self._raw)
        return self._read

    @property
    def claims(self) -> object:
        return json.loads(self._claims) if self._claims else {}

    @property
    def hints(self) -> object:
        hints = self._hints()
        return _MISSING if hints is None else dict(hints)


_VALUES: Final[Mapping[str, Callable[[CallFacts], object]]] = {
    "arguments": lambda facts: facts.arguments,
    "principal": lambda facts: facts.principal,
    "claims": lambda facts: facts.claims,
    "client": lambda facts: facts.client,
    "hints": lambda facts: facts.hints,
}


class CallPolicy(msgspec.Struct, frozen=True):
    """Conditions of one entry of `per_tool`, at `place` of the configuration. `allow` None: no `allow_if`."""

    place: str
    deny: tuple[Test, ...] = ()
    allow: tuple[Test, ...] | None = None
    reason: str = ""


class Ruling(msgspec.Struct, frozen=True):
    """The rule that refuses a call, by its place in the configuration, and its reason."""

    rule: str
    reason: str


def ruling(policies: Sequence[CallPolicy], facts: CallFacts) -> Ruling | None:
    """The first `deny_if` that is met, else the first `allow_if` that is not; None lets the call pass."""
    for policy in policies:
        for index, test in enumerate(policy.deny):
            if test(facts) is not False:
                return Ruling(f"{policy.place}.deny_if[{index}]", policy.reason)
    for policy in policies:
        if policy.allow is not None and not any(test(facts) for test in policy.allow):
            return Ruling(f"{policy.place}.allow_if", policy.reason)
    return None


def is_met(tests: Sequence[Test], facts: CallFacts) -> bool:
    """Whether a condition may hold; without conditions it does."""
    return not tests or any(test(facts) is not False for test in tests)


def compiled(condition: Mapping[str, object]) -> Test:
    """The test of a record with members of `CallFacts`."""
    checks = [(_VALUES[name], _check(pattern, is_set=name == "claims")) for name, pattern in condition.items()]

    def test(facts: CallFacts) -> bool | None:
        return _both(check(value(facts)) for value, check in checks)

    return test


def _check(pattern: object, *, is_set: bool) -> _Check:
    """`is_set`: an array is met by one of its elements, as a group is by one of those of a person."""
    match pattern:
        case dict():
            return _record({str(name): _check(each, is_set=is_set) for name, each in pattern.items()})
        case list() | tuple():
            checks = [_check(each, is_set=is_set) for each in pattern]
            return lambda value: _either([check(value) for check in checks])
        case _:
            check = _scalar(pattern)
            if not is_set:
                return check
            return lambda value: _either([check(each) for each in value]) if isinstance(value, list) else check(value)


def _record(checks: Mapping[str, _Check]) -> _Check:
    def check(value: object) -> bool | None:
        if not isinstance(value, dict):
            return None
        return _both([each(value.get(name, _MISSING)) for name, each in checks.items()])

    return check


def _scalar(pattern: object) -> _Check:
    match pattern:
        case str():
            globs = (pattern,)
            return lambda value: any_matches(globs, (value,)) if isinstance(value, str) else None
        case bool():
            return lambda value: value is pattern if isinstance(value, bool) else None
        case int() | float():
            return lambda value: value == pattern if _is_number(value) else None
        case _:
            return lambda value: True if value is None else None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _both(verdicts: Iterable[bool | None]) -> bool | None:
    result: bool | None = True
    for verdict in verdicts:
        if verdict is False:
            return False
        if verdict is None:
            result = None
    return result


def _either(verdicts: Sequence[bool | None]) -> bool | None:
    if True in verdicts:
        return True
    return None if None in verdicts or not verdicts else False


def _decoded(raw: RawJson) -> object:
    """The arguments; an object with a member twice, and what cannot be read, has no members that can be tested."""
    try:
        return json.loads(bytes(raw), object_pairs_hook=_once)
    except (ValueError, RecursionError):
        return _TWICE


def _once(pairs: list[tuple[str, object]]) -> object:
    members = dict(pairs)
    return members if len(members) == len(pairs) else _TWICE
