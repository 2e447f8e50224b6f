"""What tools cost: each form of each tool, what they add up to, and what is really listed in every mode."""

import json
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from mcp_hub.catalog import token_costs
from mcp_hub.catalog.compact import compact_tool
from mcp_hub.catalog.offers.definitions import in_era
from mcp_hub.catalog.offers.rules import ServerRules, ViewRules
from mcp_hub.catalog.texts import signature
from mcp_hub.catalog.token_costs import _CostQuery, _Measures, account
from mcp_hub.catalog.tokens import estimate
from mcp_hub.catalog.views.exposure import decided, exposed
from mcp_hub.catalog.views.view import CatalogView, build
from mcp_hub.protocol.rest.servers import ModeTokens, TokenAccount, Tokens
from mcp_hub.types import ClientKind, Era, Kind
from tests.unit.catalog.offers import offer

ANYBODY = ClientKind(max_tools=240)
CODE = ClientKind(max_tools=400, defers_tools=True)


def tool(name: str, words: int = 3, **members: Any) -> bytes:
    schema = {"type": "object", "title": "T", "properties": {"q": {"type": "string", "title": "Q"}}}
    described = {"name": name, "description": "word " * words, "inputSchema": schema, **members}
    return json.dumps(described, separators=(",", ":"), ensure_ascii=False).encode()


GIT = offer("git", tool("log", 4), tool("create_branch", 90, outputSchema={"type": "object"}), tool("blame", 4))
MAIL = offer("mail", tool("send", 300, outputSchema={"type": "string"}), tool("read", execution={"taskSupport": "x"}))
RULES = ViewRules({name: ServerRules(name) for name in ("git", "mail")}, expose="auto", budget=10_000)


def view_of(rules: ViewRules = RULES) -> CatalogView:
    return build([GIT, MAIL], rules)


def counted(asked: _CostQuery | None = None, *, rules: ViewRules = RULES, client: ClientKind = ANYBODY) -> TokenAccount:
    return account(view_of(rules), rules, client, asked or _CostQuery())


def mode_of(found: TokenAccount, expose: str) -> ModeTokens:
    return next(one for one in found.modes if one.expose == expose)


def test_each_tool_has_the_cost_of_what_a_client_would_be_sent_of_it() -> None:
    tools = counted().tools
    entries = view_of().entries(Kind.TOOL)
    assert [(one.name, one.server) for one in tools] == [(entry.exported, entry.server) for entry in entries]
    for one, entry in zip(tools, entries, strict=True):
        sent = in_era(Kind.TOOL, entry.raw, Era.HANDSHAKE)
        assert one.tokens.full == estimate(sent)
        assert one.tokens.compact == estimate(compact_tool(sent)) < one.tokens.full
        assert one.tokens.signature == estimate(signature(entry.exported, sent))
    send = next(entry for entry in entries if entry.key == "send")
    assert b"outputSchema" in send.raw and b"outputSchema" not in in_era(Kind.TOOL, send.raw, Era.HANDSHAKE)


def test_servers_and_the_total_are_the_sums_of_their_tools() -> None:
    found = counted()
    assert [(one.server, one.tools) for one in found.servers] == [("git", 3), ("mail", 2)]
    for form in msgspec.structs.fields(Tokens):
        for one in found.servers:
            own = [tool for tool in found.tools if tool.server == one.server]
            assert getattr(one.tokens, form.name) == sum(getattr(tool.tokens, form.name) for tool in own)
        assert getattr(found.total, form.name) == sum(getattr(one.tokens, form.name) for one in found.tools)


@pytest.mark.parametrize("client", [ANYBODY, CODE, replace(ANYBODY, max_result_tokens=0)], ids=["any", "code", "whole"])
def test_modes_are_what_is_listed_where_expose_says_so(client: ClientKind) -> None:
    view, found = view_of(), counted(client=client)
    assert [one.expose for one in found.modes] == ["full", "search", "names", "auto"]
    for one in found.modes:
        asking = replace(client, expose=one.expose)
        mode = decided(view, RULES, asking)
        listed = exposed(view, RULES, asking, mode).entries(Kind.TOOL)
        sent = [estimate(in_era(Kind.TOOL, entry.raw, Era.HANDSHAKE)) for entry in listed]
        assert (one.mode, one.listed, one.tokens) == (mode, len(sent), sum(sent))
    assert found.defers == client.defers_tools and found.max_tools == client.max_tools


def test_current_is_what_the_client_s_kind_says_else_the_profile() -> None:
    assert counted().current == mode_of(counted(), "auto")
    names = counted(rules=replace(RULES, expose="names"))
    assert names.current == mode_of(names, "names") and names.current.mode == "names"
    assert counted(client=replace(ANYBODY, expose="search")).current.expose == "search"
    small = counted(rules=replace(RULES, budget=20))
    assert (small.current.expose, small.current.mode, small.budget) == ("auto", "search", 20)


def test_one_server_is_counted_alone_and_lists_are_of_all() -> None:
    whole, own = counted(), counted(_CostQuery(client="c", profile="p", server="mail"))
    assert [one.name for one in own.tools] == ["mail_send", "mail_read"]
    assert own.servers == tuple(one for one in whole.servers if one.server == "mail")
    assert own.total == own.servers[0].tokens and own.modes == whole.modes
    assert (own.client, own.profile) == ("c", "p")
    assert counted(_CostQuery(server="none")).total == Tokens()


def test_heaviest_are_the_longest_definitions_and_equal_ones_go_by_name() -> None:
    assert counted(_CostQuery(heaviest=2)).heaviest == ("mail_send", "git_create_branch")
    assert counted(_CostQuery(heaviest=0)).heaviest == ()
    same = build([offer("git", tool("b"), tool("a"))], RULES)
    assert account(same, RULES, ANYBODY).heaviest == ("git_a", "git_b")


def test_what_was_measured_is_not_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    measures = _Measures()
    first = account(view_of(), RULES, ANYBODY, _CostQuery(), measures)
    monkeypatch.setattr(token_costs, "compact_tool", None)
    monkeypatch.setattr(token_costs, "signature", None)
    assert account(view_of(), RULES, ANYBODY, _CostQuery(), measures) == first
    other = build([offer("git", tool("log", 5))], RULES)
    with pytest.raises(TypeError):
        account(other, RULES, ANYBODY, _CostQuery(), measures)


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_costs, "_REMEMBERED", 3)
    measures = _Measures()
    assert account(view_of(), RULES, ANYBODY, _CostQuery(), measures) == counted()
    assert len(measures._cache) <= 3


def test_beyond_a_bound_definitions_are_not_compacted_and_the_next_account_continues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entries = view_of().entries(Kind.TOOL)
    monkeypatch.setattr(token_costs, "_MOST_COMPACTED", len(entries[0].raw) + len(entries[1].raw) + 1)
    measures = _Measures()
    seen = [account(view_of(), RULES, ANYBODY, _CostQuery(), measures) for _ in range(5)]
    assert [one.tokens.compact < one.tokens.full for one in seen[0].tools] == [True, True, False, False, False]
    assert [one.tokens.full for one in seen[0].tools] == [one.tokens.full for one in seen[-1].tools]
    assert all(one.tokens.compact < one.tokens.full for one in seen[-1].tools if one.name != "mail_send")
