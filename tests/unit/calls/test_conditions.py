"""Conditions over calls: globs, types, *and* and *or*, and what is missing."""

import json
import time
from collections.abc import Mapping
from typing import Any

import pytest

from mcp_hub.calls.gates.asking import AskRule, strictest
from mcp_hub.calls.gates.conditions import Facts, allowing, compiled, denying, facts_of, ruling

HINTS = {"readOnlyHint": False, "destructiveHint": True}


def facts(
    arguments: Any = None, *, raw: bytes | None = None, client: str = "cursor", claims: Mapping[str, Any] | None = None
) -> Facts:
    sent = json.dumps(arguments if arguments is not None else {}).encode() if raw is None else raw
    encoded = "" if claims is None else json.dumps(claims)
    return facts_of(sent, "alice", client, claims=encoded, hints=lambda: HINTS)


REPO = {"arguments": {"repo": "team/*"}}
CASES: list[tuple[Mapping[str, object], Facts, bool | None]] = [
    (REPO, facts({"repo": "team/a/b"}), True),
    (REPO, facts({"repo": "other/a"}), False),
    (REPO, facts({"repo": "TEAM/a"}), False),
    (REPO, facts({}), None),
    (REPO, facts({"repo": None}), None),
    (REPO, facts({"repo": 3}), None),
    (REPO, facts({"repo": ["team/a"]}), None),
    (REPO, facts({"repo": {"name": "team/a"}}), None),
    (REPO, facts(raw=b'{"repo":"team/a","repo":"other/b"}'), None),
    (REPO, facts(raw=b'{"repo":"team/a","\\u0072epo":"other/b"}'), None),
    (REPO, facts(raw=b'{"r\\u0065po":"team/a"}'), True),
    (REPO, facts(raw=b"null"), None),
    (REPO, facts(raw=b"[]"), None),
    (REPO, facts(raw=b'{"repo":"team/\xff"}'), None),
    (REPO, facts(raw=b'{"repo":' + b"[" * 100_000), None),
    (REPO, facts(raw=b'{"repo":"team/a","x":{"a":1,"a":2}}'), True),
    ({"arguments": {"x": {"a": 1}}}, facts(raw=b'{"x":{"a":1,"a":2}}'), None),
    ({"arguments": {"repo": ["a", "b*"]}}, facts({"repo": "bc"}), True),
    ({"arguments": {"repo": ["a", 1]}}, facts({"repo": "c"}), None),
    ({"arguments": {"repo": "a", "force": True}}, facts({"repo": "a", "force": True}), True),
    ({"arguments": {"repo": "a", "force": True}}, facts({"repo": "b"}), False),
    ({"arguments": {"repo": "a", "force": True}}, facts({"repo": "a"}), None),
    ({"arguments": {"force": True}}, facts({"force": 1}), None),
    ({"arguments": {"count": 1}}, facts({"count": 1.0}), True),
    ({"arguments": {"count": 1}}, facts({"count": True}), None),
    ({"arguments": {"at": {"host": "*.example"}}}, facts({"at": {"host": "a.example"}}), True),
    ({"arguments": {"at": None}}, facts({"at": None}), True),
    ({"principal": ["bob", "al*"]}, facts(), True),
    ({"principal": ["bob"]}, facts(), False),
    ({"client": ["cursor"]}, facts(), True),
    ({"client": ["*"]}, facts(client=""), None),
    ({"claims": {"groups": "admin"}}, facts(claims={"groups": ["dev", "admin"]}), True),
    ({"claims": {"groups": "admin"}}, facts(claims={"groups": "admin"}), True),
    ({"claims": {"groups": "admin"}}, facts(claims={"groups": ["dev"]}), False),
    ({"claims": {"groups": "admin"}}, facts(claims={"groups": []}), None),
    ({"claims": {"groups": "admin"}}, facts(claims={"groups": ["dev", 1]}), None),
    ({"claims": {"groups": "admin"}}, facts(), None),
    ({"hints": {"destructiveHint": True}}, facts(), True),
    ({"hints": {"readOnlyHint": True}}, facts(), False),
    ({"hints": {"openWorldHint": True}}, facts(), None),
]


@pytest.mark.parametrize(("condition", "given", "expected"), CASES)
def test_condition(condition: Mapping[str, object], given: Facts, expected: bool | None) -> None:
    test = compiled(condition)
    assert test(given) is expected
    assert (allowing("p", [test], "no")(given) is None) is (expected is True), "only what is sure is allowed"
    assert (denying("p", [test], "no")(given) is None) is (expected is False), "what is not sure is denied"


def test_unknown_hints_fit_no_allow_and_every_deny() -> None:
    unknown = facts_of(b"{}", "alice", "x", claims="", hints=lambda: None)
    assert compiled({"hints": {"readOnlyHint": True}})(unknown) is None


ALLOW, DENY = {"arguments": {"repo": "team/*"}}, {"arguments": {"repo": "*/secret"}}


@pytest.mark.parametrize(
    ("repo", "rule"),
    [
        ("team/a", None),
        ("team/secret", "one.deny_if[1]"),
        ("other/secret", "one.deny_if[1]"),
        ("other/a", "two.allow_if"),
    ],
)
def test_every_deny_decides_before_any_allow(repo: str, rule: str | None) -> None:
    denies = [compiled({"arguments": {"repo": "x"}}), compiled(DENY)]
    judges = [denying("one", denies, "first"), allowing("two", [compiled(ALLOW)], "second")]
    found = ruling(judges, facts({"repo": repo}))
    assert (found and found[0]) == rule


CONDITION = (compiled(REPO),)


@pytest.mark.parametrize(
    ("rules", "is_read_only", "expected"),
    [
        ([AskRule("hub", unread_only=True)], True, None),
        ([AskRule("hub", unread_only=True)], False, ("hub", True, False)),
        ([AskRule("tool", always=False), AskRule("hub", unread_only=True)], False, ("hub", True, False)),
        ([AskRule("tool", always=False), AskRule("hub", unread_only=True)], True, ("tool", False, False)),
        ([AskRule("tool", always=False), AskRule("p", always=False, by_person=True)], True, ("tool", False, True)),
        ([AskRule("tool", tests=CONDITION)], True, ("tool", True, False)),
    ],
)
def test_strictest_rule_holds(
    rules: list[AskRule], is_read_only: bool, expected: tuple[str, bool, bool] | None
) -> None:
    found = strictest(rules, facts({"repo": "team/a"}), is_read_only=is_read_only)
    assert expected == (None if found is None else (found.path, found.always, found.by_person))


def test_condition_of_an_ask_that_is_surely_not_met_asks_nothing() -> None:
    assert strictest([AskRule("tool", tests=CONDITION)], facts({"repo": "b"}), is_read_only=False) is None
    assert strictest([AskRule("tool", tests=CONDITION)], facts({}), is_read_only=False) is not None


def test_policy_costs_little() -> None:
    """50 µs for a call; a whole decision of ten conditions takes a tenth of what reading 64 KiB of JSON does."""
    conditions = [compiled({"arguments": {"repo": f"team{index}/*", "kind": ["a", "b"]}}) for index in range(10)]
    judges = [denying("p", conditions, "r"), allowing("q", [compiled(ALLOW)], "r")]
    sent = json.dumps({"repo": "team/a", "kind": "c", "text": "x" * 200}).encode()

    def seconds(work: Any, times: int) -> float:
        best = 1.0
        for _ in range(7):
            begin = time.perf_counter()
            for _ in range(times):
                work()
            best = min(best, (time.perf_counter() - begin) / times)
        return best

    decided = seconds(lambda: ruling(judges, facts_of(sent, "alice", "c", claims="", hints=lambda: HINTS)), 200)
    large = json.dumps([{"a": index} for index in range(6000)])
    assert decided < seconds(lambda: json.loads(large), 10) / 10
