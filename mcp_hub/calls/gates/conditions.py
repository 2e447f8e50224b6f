"""Conditions over a call: its arguments, principal, claims, client and hints, by globs. Pure.

A condition is true, false, or unknown (None): the value is missing, of another type, or said twice. A record is *and*,
a list is *or*. `allow_if` needs a true condition; `deny_if` and `ask` are met by one that is not false.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Final

from mcp_hub.globs import any_matches
from mcp_hub.types import RawJson

Facts = Mapping[str, Callable[[], object]]
"""Values of a call that conditions test, by name; each is read when a condition needs it."""
Test = Callable[[Facts], bool | None]
"""A compiled condition."""
Judge = Callable[[Facts], tuple[str, str] | None]
"""A rule that may refuse a call: its path in the configuration and its reason, or None."""
Hints = Callable[[], Mapping[str, bool] | None]
"""The hints of a tool by their MCP names; None: the tool is not known."""
_Check = Callable[[object], bool | None]
_MISSING: Final = object()
_TWICE: Final = object()
"""An object with two members of one name: servers differ in which one they take."""


def facts_of(arguments: RawJson, principal: str, client: str, claims: str, hints: Hints) -> Facts:
    """The facts of one call; `claims` are JSON."""
    return {
        "arguments": cache(lambda: _decoded(arguments)),
        "principal": lambda: principal,
        "client": lambda: client or _MISSING,
        "claims": cache(lambda: json.loads(claims) if claims else {}),
        "hints": lambda: _MISSING if (values := hints()) is None else dict(values),
    }


def denying(path: str, tests: Sequence[Test], reason: str) -> Judge:
    """Refuses a call that one of `tests` may fit."""

    def judge(facts: Facts) -> tuple[str, str] | None:
        index = next((number for number, test in enumerate(tests) if test(facts) is not False), None)
        return None if index is None else (f"{path}.deny_if[{index}]", reason)

    return judge


def allowing(path: str, tests: Sequence[Test], reason: str) -> Judge:
    """Refuses a call unless it surely fits one of `tests`."""
    return lambda facts: None if any(test(facts) for test in tests) else (f"{path}.allow_if", reason)


def ruling(judges: Sequence[Judge], facts: Facts) -> tuple[str, str] | None:
    """The first refusal; None: the call passes."""
    return next(filter(None, (judge(facts) for judge in judges)), None)


def is_met(tests: Sequence[Test], facts: Facts) -> bool:
    """Whether a condition may hold; without conditions True."""
    return not tests or any(test(facts) is not False for test in tests)


def compiled(condition: Mapping[str, object]) -> Test:
    """The test of a record with members of `Facts`."""
    checks = [(name, _check(pattern, is_set=name == "claims")) for name, pattern in condition.items()]

    def test(facts: Facts) -> bool | None:
        return _both(check(facts[name]()) for name, check in checks)

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
