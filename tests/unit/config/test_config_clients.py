"""How long each client waits (`hub.clients`): what is built in, what the file says instead, and who is meant."""

from pathlib import Path

import pytest

from mcp_hub.config.load.load import parse
from mcp_hub.config.schema.clients import ClientRules
from mcp_hub.config.schema.settings import Settings
from mcp_hub.errors import ConfigError
from tests.unit.config.faults import refused

OWN = """
  patient: {soft_deadline: 10m, matches: ["Visual Studio*", "cursor-vscode"]}
  Claude-Desktop: {soft_deadline: 100s}
  claudes: {soft_deadline: 30, matches: ["claude*", "cursor-*"]}
"""


GAP = 0.005
"""Seconds: the result gap of every client that may be built with the TypeScript SDK."""


def settings(clients: str = "", name: str = "servers.yaml") -> Settings:
    text = f"hub:\n clients:{clients}\nservers: {{a: {{command: x}}}}"
    return parse(text, name, {}, Path("/base")).settings


@pytest.mark.parametrize(
    ("client_name", "rules"),
    [
        ("claude-code", ClientRules(400, True, None, 8.0, one_line=True, result_gap=GAP)),
        ("claude-ai", ClientRules(240, False, 200.0, 8.0, result_gap=GAP)),
        ("claude-desktop", ClientRules(240, False, 200.0, 8.0, result_gap=GAP)),
        ("Codex-MCP-Client", ClientRules(120, False, 240.0, 6.0)),
        ("OpenAI-MCP (ChatGPT)", ClientRules(120, False, 45.0, 3.5, result_gap=GAP)),
        ("cursor-vscode", ClientRules(120, False, 45.0, 8.0, result_gap=GAP)),
        ("Visual Studio Code - Insiders", ClientRules(120, False, None, 8.0, result_gap=GAP)),
        ("claude-code-fork", ClientRules(240, False, 45.0, 3.5, result_gap=GAP)),
        ("", ClientRules(240, False, 45.0, 3.5, result_gap=GAP)),
        (None, ClientRules(240, False, 45.0, 3.5, result_gap=GAP)),
        ("zed", ClientRules(240, False, 45.0, 3.5)),
        ("goose-desktop", ClientRules(240, False, 240.0, 3.5)),
        ("gemini-cli-mcp-client", ClientRules(240, False, 540.0, 8.0, result_gap=GAP)),
        ("opencode", ClientRules(240, False, None, 8.0, result_gap=GAP)),
        ("@cline/core", ClientRules(240, False, 45.0, 3.5, result_gap=GAP)),
        ("continue-cli-client", ClientRules(240, False, 45.0, 3.5, result_gap=GAP)),
    ],
)
def test_clients_that_are_known_have_their_own_rules(client_name: str | None, rules: ClientRules) -> None:
    assert settings().client_table.rules(client_name, None) == rules


@pytest.mark.parametrize(
    ("client_name", "seconds"),
    [("gemini-cli", 540.0), ("zed", 45.0), ("opencode", None), ("kiro", None), ("somebody", None)],
)
def test_a_deadline_over_http_is_for_clients_whose_timeout_is_known(client_name: str, seconds: float | None) -> None:
    assert settings().client_table.rules(client_name, None, known_only=True).soft_deadline == seconds


@pytest.mark.parametrize(("chosen", "seconds"), [("codex", 240.0), ("CLAUDE-CODE", None), ("unknown", 45.0)])
def test_chosen_client_goes_before_the_name_that_it_gives(chosen: str, seconds: float | None) -> None:
    assert settings().client_table.rules("claude-ai", chosen).soft_deadline == seconds


@pytest.mark.parametrize(
    ("client_name", "seconds"),
    [
        ("VISUAL STUDIO CODE", 600.0),  # a glob, whatever the case
        ("cursor-vscode", 600.0),  # the first entry to match, in the order of the file
        ("cursor-cli", 30.0),
        ("claudes", 30.0),  # the entry's own name
        ("claude-code", 30.0),  # a glob of the file goes before what is built in
        ("claude-ai", 100.0),  # an entry without matches keeps the built-in ones; an exact name wins over a glob
        ("claude-desktop", 100.0),
        ("codex-mcp-client", 240.0),  # not touched
        ("else", 45.0),
    ],
)
def test_entries_of_the_file_go_before_the_built_in_ones(client_name: str, seconds: float) -> None:
    assert settings(OWN).client_table.rules(client_name, None).soft_deadline == seconds


def test_unknown_clients_and_dropped_names_have_what_the_file_says() -> None:
    found = settings(" {claude-desktop: {soft_deadline: 9, matches: []}}").client_table.rules("claude-ai", None)
    assert found.soft_deadline == 45.0
    assert settings(" {unknown: {soft_deadline: 20s}}").client_table.rules("else", None).soft_deadline == 20.0
    assert settings(" {Unknown: {soft_deadline: never}}").client_table.rules(None, None).soft_deadline is None


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ("claud-code", 'unknown client "claud-code". Did you mean "claude-code"? Known: '),
        ("xyz", 'unknown client "xyz". Known: claude-code, claude-desktop, cline, codex, continue, '),
        ("claude-ai", 'unknown client "claude-ai". Did you mean '),  # what it calls itself is not its entry's name
        ("", 'unknown client "". Known: '),
    ],
)
def test_chosen_client_that_is_unknown_is_refused_with_the_known_ones(chosen: str, said: str) -> None:
    own = settings(" {mine: {soft_deadline: 1}}")
    for ask in (own.client_table.require, lambda name: own.client_table.rules("claude-code", name).soft_deadline):
        with pytest.raises(ConfigError) as caught:
            ask(chosen)
        assert str(caught.value).startswith(said)


def test_copy_with_other_clients_forgets_the_old_ones() -> None:
    old, new = settings(), settings(" {unknown: {soft_deadline: 1}}")
    assert old.client_table.rules(None, None).soft_deadline == 45.0
    for deep in (False, True):
        assert old.model_copy(update={"hub": new.hub}, deep=deep).client_table.rules(None, None).soft_deadline == 1.0
    assert old.client_table.rules(None, None).soft_deadline == 45.0


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("  a: {soft_deadlin: 1s, soft_deadline: 1s}", ".a.soft_deadlin [unknown_key]"),
        ("  a: {soft_deadline: }", ".a [missing_key]"),
        ("  a: {}", ".a [missing_key]"),
        ("  a: {max_tools: 0}", ".a.max_tools [out_of_range]"),
        ("  a: {max_tools: many}", ".a.max_tools [wrong_type]"),
        ("  a: {defers_tools: perhaps}", ".a.defers_tools [wrong_type]"),
        ("  a: {soft_deadline: cancel}", ".a.soft_deadline [invalid_value]"),
        ("  a: {soft_deadline: 0s}", ".a.soft_deadline [invalid_value]"),
        ("  a: {soft_deadline: 400d}", ".a.soft_deadline [invalid_value]"),
        ("  a: {soft_deadline: false}", ".a.soft_deadline [invalid_value]"),
        ("  a: {soft_deadline: 1s, matches: x}", ".a.matches [wrong_type]"),
        ("  a: {soft_deadline: 1s, matches: ['']}", ".a.matches[0] [out_of_range]"),
        ("  a: 45s", ".a [wrong_type]"),
        ("  '': {soft_deadline: 1s}", '[""] [out_of_range]'),
        ('  "a\\nb": {soft_deadline: 1s}', '["a\\nb"] [invalid_value]'),
        ("  Unknown: {soft_deadline: 1s, matches: [x]}", ".Unknown [misplaced_key]"),
    ],
)
def test_bad_entry_is_found_where_it_stands(entry: str, said: str) -> None:
    assert refused(settings, f"\n{entry}").startswith(f"servers.yaml:3: hub.clients{said}")


def test_entries_that_differ_in_case_only_are_refused() -> None:
    found = refused(settings, "\n  Mine: {soft_deadline: 1s}\n  mine: {soft_deadline: 2s}")
    assert found == "servers.yaml:4: hub.clients.mine [duplicate_name]"


PARTS = """
  claude-desktop: {max_tools: 9}
  claude-code: {soft_deadline: 5s}
  mine: {defers_tools: true, matches: ["my-*"]}
  quick: {soft_deadline: 1s}
  names: {matches: [other]}
  unknown: {max_tools: 7, soft_deadline: 70s}
"""


@pytest.mark.parametrize(
    ("client_name", "rules"),
    [
        ("claude-ai", ClientRules(9, False, 200.0, 8.0, result_gap=GAP)),  # the rest is what is built in for it
        ("claude-code", ClientRules(400, True, 5.0, 8.0, one_line=True, result_gap=GAP)),
        ("my-agent", ClientRules(7, True, 70.0, 3.5, result_gap=GAP)),  # the rest is that of unknown clients
        ("quick", ClientRules(7, False, 1.0, 3.5, result_gap=GAP)),
        ("other", ClientRules(7, False, 70.0, 3.5, result_gap=GAP)),
        ("codex-mcp-client", ClientRules(120, False, 240.0, 6.0)),
        ("cursor-vscode", ClientRules(120, False, 70.0, 8.0, result_gap=GAP)),
        ("else", ClientRules(7, False, 70.0, 3.5, result_gap=GAP)),
    ],
)
def test_key_that_an_entry_leaves_out_is_the_built_in_ones_else_that_of_unknown(
    client_name: str, rules: ClientRules
) -> None:
    assert settings(PARTS).client_table.rules(client_name, None) == rules


@pytest.mark.parametrize(
    ("client_name", "chosen", "seconds"),
    [
        ("my-agent", None, None),
        ("cursor-vscode", None, None),
        ("else", None, None),
        ("quick", None, 1.0),
        ("claude-ai", None, 200.0),
        ("else", "mine", 70.0),
        ("else", "unknown", 70.0),
    ],
)
def test_where_unknown_clients_have_no_deadline_nobody_has_theirs(
    client_name: str, chosen: str | None, seconds: float | None
) -> None:
    assert settings(PARTS).client_table.rules(client_name, chosen, known_only=True).soft_deadline == seconds


@pytest.mark.parametrize(
    ("written", "waits"),
    [
        ("", (8.0, 6.0, 3.5)),
        ("first_list_wait: 20s,", (20.0, 20.0, 20.0)),
        ("first_list_wait: 0,", (0.0, 0.0, 0.0)),
        ("clients: {codex: {max_tools: 1}, unknown: {max_tools: 1}, else: {max_tools: 1}},", (8.0, 6.0, 3.5)),
    ],
)
def test_how_long_a_first_list_waits_is_that_of_the_client_else_that_of_the_hub(
    written: str, waits: tuple[float, ...]
) -> None:
    text = f"hub: {{{written}}}\nservers: {{a: {{command: x}}}}"
    table = parse(text, "servers.yaml", {}, Path("/base")).settings.client_table
    names = ("claude-ai", "codex-mcp-client", "else")
    assert tuple(table.rules(name, None).first_list_wait for name in names) == waits
