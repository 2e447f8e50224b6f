"""What counts as a change of a tool, and what becomes of pins when servers list and people approve."""

import json
from typing import Any

import msgspec
import pytest

from mcp_hub.catalog import pins
from mcp_hub.catalog.pins import (
    Fingerprint,
    Pin,
    Policy,
    Record,
    approved,
    encoded,
    findings_of,
    fingerprint,
    read,
    seen,
    unconfirmed_of,
)
from mcp_hub.types import Kind, RawObject

TOOL = {
    "name": "pay",
    "description": "Pays.",
    "inputSchema": {"type": "object", "properties": {"to": {"type": "string"}, "sum": {"type": "number"}}},
    "outputSchema": {"type": "object"},
    "annotations": {"readOnlyHint": False},
}


def fields(text: str | bytes | dict[str, Any]) -> RawObject:
    return msgspec.json.decode(json.dumps(text) if isinstance(text, dict) else text, type=RawObject)


def pinned(**members: Any) -> Fingerprint:
    return fingerprint(fields({**TOOL, **members}))


@pytest.mark.parametrize("member", pins.MEMBERS)
def test_each_member_of_the_pin_changes_it_and_is_named(member: str) -> None:
    other = {"name": "paid", "description": "Pays!"}.get(member, {"type": "object", "title": "T"})
    now = pinned(**{member: other})
    assert now.digest != pinned().digest
    record = Record({"pay": Pin(pinned(), now)})
    assert findings_of("bank", record, ["pay"], "warn")["pay"].members == (member,)


def test_what_is_no_member_of_the_pin_changes_nothing() -> None:
    others = {"title": "Pay", "icons": [{"src": "https://x.example/i.png"}], "_meta": {"a": 1}, "execution": {}}
    assert fingerprint(pins.pinned(Kind.TOOL, fields({**TOOL, **others}))) == pinned()


@pytest.mark.parametrize(
    "meta",
    [
        {"ui": {"resourceUri": "ui://pay/2"}},
        {"ui": {"resourceUri": "ui://pay/1", "visibility": ["app", "model"]}},
        {"ui/resourceUri": "ui://pay/1"},
        {"other": 1},
        None,
    ],
)
def test_another_app_of_a_tool_changes_it_and_other_members_of_its_meta_do_not(meta: Any) -> None:
    def app(meta: Any) -> Fingerprint:
        return fingerprint(pins.pinned(Kind.TOOL, fields({**TOOL, "_meta": meta, "app": meta})))

    before = app({"ui": {"resourceUri": "ui://pay/1"}, "other": 0})
    record = after(after(Record(), "warn", pay=before), "warn", pay=app(meta))
    assert findings_of("bank", record, ["pay"], "warn")["pay"].members == ("app",)
    same = app({"other": 1, "ui": {"resourceUri": "ui://pay/1"}})
    assert same == before


def test_the_order_of_members_and_white_space_change_nothing_nor_does_a_null() -> None:
    schema = b'{"properties" : {"sum":{"type":"number"},\t"to":{"type":"str\\u0069ng"}},"type":"object"}'
    text = (
        b'{"inputSchema":%s,"name":"pay","annotations":{"readOnlyHint":false},"description":"Pays.","x":null,' % schema
    )
    now = fingerprint(fields(text + b'"outputSchema":{"type":"object"}}'))
    assert (now.digest, now.members) == (pinned().digest, pinned().members)
    assert fingerprint(fields(text + b'"outputSchema":{"type":"object"}}'), is_ordered=False).digest != now.digest
    bare = {name: own for name, own in TOOL.items() if name != "annotations"}
    assert fingerprint(fields({**TOOL, "annotations": None})).digest == fingerprint(fields(bare)).digest


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"type":"object","default":1}', '{"type":"object","default":"1"}'),
        ('{"type":"object","default":1}', '{"type":"object","default":true}'),
        ('{"type":"object","required":["a","b"]}', '{"type":"object","required":["b","a"]}'),
        # parsers keep the first or the last of two: each of these is another schema to somebody
        ('{"type":"object","title":"b"}', '{"type":"object","title":"a","title":"b"}'),
        ('{"type":"object","title":"b","title":"b"}', '{"type":"object","title":"a","title":"b"}'),
        ('{"type":"object","default":1e999}', '{"type":"object","default":2e999}'),
        ('{"type":"object","title":"a\\"b:c"}', '{"type":"object","title":"a\\"b:d"}'),
    ],
)
def test_any_other_difference_changes_the_pin(one: str, other: str) -> None:
    assert digest(one) != digest(other)
    assert digest(one) == digest(one)


def digest(schema: str) -> str:
    return fingerprint(fields(b'{"name":"pay","inputSchema":%s}' % schema.encode())).digest


def after(record: Record, policy: Policy, now: float = 1.0, **offered: Fingerprint) -> Record:
    return seen(record, offered, policy, now)


@pytest.mark.parametrize("policy", ["warn", "block"])
def test_the_first_list_is_approved_as_it_is(policy: Policy) -> None:
    record = after(Record(), policy, pay=pinned())
    assert record.tools["pay"].approved is not None and record.tools["pay"].offered is None
    assert findings_of("bank", record, ["pay"], policy) == {}
    assert after(record, policy, 2.0, pay=pinned()) is record


@pytest.mark.parametrize("policy", ["warn", "block"])
def test_a_change_stays_a_finding_until_it_is_approved_or_taken_back(policy: Policy) -> None:
    record = after(Record(), policy, pay=pinned())
    changed = after(record, policy, 2.0, pay=pinned(description="Pays me."))
    found = findings_of("bank", changed, ["pay"], policy)["pay"]
    assert (found.kind, found.members, found.since, found.is_held) == (
        "changed",
        ("description",),
        2.0,
        policy == "block",
    )
    assert after(changed, policy, 3.0, pay=pinned(description="Pays me.")) is changed, "first seen at 2"
    back = after(changed, policy, 3.0, pay=pinned())
    assert findings_of("bank", back, ["pay"], policy) == {}
    done, missed = approved(changed, {"pay": found.digest}, 4.0)
    assert missed == [] and findings_of("bank", done, ["pay"], policy) == {}
    assert after(done, policy, pay=pinned(description="Pays me.")) is done
    assert findings_of("bank", after(done, policy, pay=pinned()), ["pay"], policy)["pay"].kind == "changed"


def test_what_was_not_looked_at_cannot_be_approved() -> None:
    record = after(after(Record(), "warn", pay=pinned()), "warn", pay=pinned(description="2"))
    digest = findings_of("bank", record, ["pay"], "warn")["pay"].digest
    later = after(record, "warn", pay=pinned(description="3"))
    same, missed = approved(later, {"pay": digest, "other": digest}, 5.0)
    assert missed == ["pay", "other"] and same == later


@pytest.mark.parametrize("policy", ["warn", "block"])
def test_an_approval_by_a_person_is_told_from_trust_on_first_use_and_holds_for_that_definition(policy: Policy) -> None:
    record = after(Record(), policy, pay=pinned())
    (found,) = unconfirmed_of("bank", record, ["pay", "gone"]).values()
    assert (found.kind, found.tool, found.is_held) == ("unconfirmed", "pay", False)
    assert not record.tools["pay"].confirms(pinned())
    confirmed, missed = approved(record, {"pay": found.digest}, 2.0)
    assert missed == [] and unconfirmed_of("bank", confirmed, ["pay"]) == {}
    pin = read(encoded(confirmed)).tools["pay"]
    assert pin.by_user and pin.confirms(pinned()) and not pin.confirms(pinned(annotations={"readOnlyHint": True}))
    assert after(confirmed, policy, pay=pinned()) is confirmed, "it was seen before"
    changed = after(confirmed, policy, pay=pinned(annotations={"readOnlyHint": True}))
    back = after(changed, policy, pay=pinned())
    assert changed.tools["pay"].by_user and changed.tools["pay"].offered is not None and back == confirmed
    digest = findings_of("bank", changed, ["pay"], policy)["pay"].digest
    again = approved(changed, {"pay": digest}, 3.0)[0].tools["pay"]
    assert again.confirms(pinned(annotations={"readOnlyHint": True})) and not again.confirms(pinned())


def test_a_tool_without_annotations_needs_no_approval_of_its_hints() -> None:
    bare = fingerprint(fields({"name": "pay", "inputSchema": {"type": "object"}}))
    assert unconfirmed_of("bank", after(Record(), "warn", pay=bare), ["pay"]) == {}


def test_a_new_tool_is_trusted_unless_changes_are_blocked() -> None:
    first = {"warn": after(Record(), "warn", pay=pinned()), "block": after(Record(), "block", pay=pinned())}
    trusted = after(first["warn"], "warn", pay=pinned(), refund=pinned(name="refund"))
    assert findings_of("bank", trusted, ["pay", "refund"], "warn") == {}
    held = after(first["block"], "block", pay=pinned(), refund=pinned(name="refund"))
    (found,) = findings_of("bank", held, ["pay", "refund"], "block").values()
    assert (found.tool, found.kind, found.is_held) == ("refund", "new", True)
    assert not findings_of("bank", held, ["refund"], "warn")["refund"].is_held, "nor is it approved by another policy"


def test_pins_are_bounded_and_tools_beyond_are_never_approved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pins, "MOST_TOOLS", 3)
    tools = {f"t{n}": pinned(name=f"t{n}") for n in range(5)}
    record = seen(Record(), tools, "block", 1.0)
    assert list(record.tools) == ["t0", "t1", "t2"]
    assert list(findings_of("bank", record, tools, "block")) == ["t3", "t4"]
    assert seen(record, tools, "block", 2.0) is record
    assert seen(record, {"t1": pinned(name="t1", description="?")}, "block", 2.0) is not record


def test_a_record_is_read_as_it_was_written_and_texts_have_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    record = after(after(Record(server="bank"), "block", pay=pinned()), "block", pay=pinned(description="2"))
    assert read(encoded(record)) == record
    kept = read(encoded(record)).tools["pay"].approved
    assert kept is not None and json.loads(bytes(kept.definition)) == TOOL  # type: ignore[arg-type]  # it is not UNSET
    ends = fingerprint(fields({**TOOL, "description": "x" * pins.MOST_DEFINITION}))
    assert len(bytes(ends.definition)) < 10_000 and ends.length > pins.MOST_DEFINITION  # type: ignore[arg-type]
    monkeypatch.setattr(pins, "_MOST_TEXT", 10)
    assert read(encoded(record)) == pins.without_texts(record)


def test_texts_that_wait_for_approval_are_kept_first_and_others_by_their_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    long = {name: pinned(name=name, description=name * 5000) for name in "abc"}
    record = seen(Record(server="bank"), long, "warn", 1.0)
    record = seen(record, {"c": pinned(name="c", description="c" * 6000)}, "warn", 2.0)
    monkeypatch.setattr(pins, "_MOST_TEXT", 12_000)
    tools = read(encoded(record)).tools
    assert list(tools) == ["a", "b", "c"] and tools["c"] == record.tools["c"]
    assert all(own.approved and 5000 < own.approved.length < 6000 for own in (tools["a"], tools["b"]))


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"tools":3}', b'{"tools":{},"version":2}', b"\xff", b"[" * 5000])
def test_what_is_no_record_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError):
        read(text)
    assert read(None) == Record()


def test_the_first_skills_of_a_server_are_trusted_though_its_tools_are_known() -> None:
    def skill(uri: str) -> dict[str, Fingerprint]:
        members = {"uri": uri, "frontmatter": {"name": "x"}, "resources": "dynamic"}
        return {uri: fingerprint(pins.pinned(Kind.SKILL, fields(members)))}

    record = seen(Record(), {"pay": pinned()}, "block", 1.0)
    record = seen(record, skill("skill://a/x/SKILL.md"), "block", 2.0)
    assert record.tools["skill://a/x/SKILL.md"].approved is not None
    record = seen(record, skill("skill://b/x/SKILL.md"), "block", 3.0)
    assert record.tools["skill://b/x/SKILL.md"].approved is None


def test_a_skill_is_the_same_in_whatever_order_its_files_come() -> None:
    files = [{"uri": "b", "digest": "2", "size": 1}, {"uri": "a", "digest": "1", "size": 1}]

    def digest(*resources: Any) -> str:
        return fingerprint(pins.pinned(Kind.SKILL, fields({"uri": "u", "resources": resources}))).digest

    assert digest(*files) == digest(*reversed(files)) != digest(files[0])
