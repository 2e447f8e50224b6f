"""Files of clients turned back after the client has written them anew: without the hub, with the servers that moved."""

import json
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from mcp_hub.edit import entries, json_text, toml_text, yaml_text
from mcp_hub.edit.entries import read_data, remove
from mcp_hub.onboarding.changes.plan import KeyPath, Source, plan_install, plan_move
from mcp_hub.onboarding.changes.restore import FileState, composed, restored, state_of
from mcp_hub.onboarding.clients.entries import Command
from mcp_hub.onboarding.clients.reading import ClientFile
from mcp_hub.onboarding.clients.table import CLIENTS

FORMS: Final[dict[str, tuple[Callable[[Any], str], Any]]] = {
    "json": (lambda data: json.dumps(data, indent=len(data)), json_text._scanned),
    "toml": (lambda data: "".join(_toml(data)), toml_text._listed),
    "yaml": (lambda data: yaml.safe_dump(data, sort_keys=False, indent=2 * len(data)), yaml_text.composed),
}
SOURCE: Final = Source(lambda kind: Command("/opt/mcp-hub", ("serve", "--client", kind)))
CLAUDE: Final = json.dumps(
    {
        "numStartups": 5,
        "mcpServers": {
            "one": {"type": "stdio", "command": "x", "args": ["a", "b"], "env": {"T": "é"}},
            "two": {"type": "http", "url": "https://x/mcp"},
        },
        "projects": {"/p": {"history": []}},
    },
    indent=2,
    ensure_ascii=False,
)
VSCODE: Final = (
    '\ufeff{\r\n\t// mine\r\n\t"servers": {\r\n\t\t// the first\r\n\t\t"one": {\r\n\t\t\t"command": "x", // c\r\n'
    '\t\t\t"args": ["a",],\r\n\t\t},\r\n\t\t/* second */\r\n\t\t"two": { "url": "https://x/mcp" },\r\n'
    '\t\t"stays": {"command": "y"},\r\n\t},\r\n\t"inputs": [],\r\n}\r\n'
)
CODEX: Final = (
    '# mine\nmodel = "a"\n\n# about one\n[mcp_servers.one]\ncommand = "x"\nargs = [\n  "a", # first\n]\n\n'
    '[mcp_servers.one.env]\nA = "1"\n\n# about two\n[mcp_servers.two]\nurl = "https://x/mcp"\n\n'
    '[projects."/p"]\nt = 1\n'
)
ZED: Final = (
    '// Zed\n{\n  "theme": "Dark", // dark\n  "context_servers": {\n    "one": { "command": "x", "args": [] },\n'
    '    // about two\n    "two": {\n      "url": "https://x/mcp"\n    }\n  },\n  "vim_mode": true,\n}\n'
)
GOOSE: Final = (
    "# mine\nGOOSE_MODE: auto\nextensions:\n  developer: {type: builtin, enabled: true}\n  # about one\n  one:\n"
    '    cmd: "x"  # c\n    args:\n    - a\n  two:\n    type: streamable_http\n    uri: https://x/mcp\nlast: 1\n'
)
CONTINUE: Final = (
    "name: me\nmcpServers:\n  # about one\n  - name: one\n    command: x\n    args:\n      - a\n  - name: stays\n"
    "    command: y\n  - name: two\n    url: https://x/mcp\nmodels: []\n"
)
FLAT: Final = '{"mcpServers":{"one":{"command":"x","args":["a"]},"two":{"url":"https://x/mcp"}},"b":1}'


def reordered(text: str) -> str:
    """As Claude Code does at each start: counts, adds a project, and writes the keys in another order."""
    data = json.loads(text)
    data = {"tips": {}, **data, "numStartups": data["numStartups"] + 1}
    data["projects"]["/new"] = {}
    return json.dumps(dict(sorted(data.items(), key=lambda item: item[0] == "projects")), indent=2, ensure_ascii=False)


def spaced(text: str) -> str:
    """As VS Code's own writer does: without comments, with other indentation and line ends."""
    data = json.loads(text) if text.startswith("{\n    ") else None
    return json.dumps(data or {"servers": {"mcp-hub": {"command": "/opt/mcp-hub"}, "stays": {}}}, indent=4)


def dumped(text: str) -> str:
    return yaml.safe_dump({**yaml.safe_load(text), "GOOSE_MODEL": "m"}, sort_keys=False)


def changed(*pairs: tuple[str, str]) -> Callable[[str], str]:
    def change(text: str) -> str:
        for old, new in pairs:
            assert old in text
            text = text.replace(old, new, 1)
        return text

    return change


ROWS: Final[dict[str, tuple[str, str, str, Callable[[str], str]]]] = {
    "claude code reorders": ("claude-code", ".claude.json", CLAUDE, reordered),
    "vs code, another key": ("vscode", "mcp.json", VSCODE, changed(('"inputs": []', '"inputs": [{"id": "x"}]'))),
    "vs code, beside it": ("vscode", "mcp.json", VSCODE, changed(('"y"}', '"z"}'), ("// mine", "// my own"))),
    "codex, at both ends": (
        "codex", "config.toml", CODEX, lambda text: text.replace('"a"\n', '"b"\n', 1) + '\n[projects."/q"]\nt = 2\n',
    ),
    "codex, other line ends": (
        "codex", "config.toml", CODEX.replace("\n", "\r\n"), changed(("# mine", "# my own"), ("t = 1", "t = 2")),
    ),
    "zed, other settings": ("zed", "settings.json", ZED, changed(('"Dark"', '"Light"'), ("true,", "false,"))),
    "goose, other settings": ("goose", "config.yaml", GOOSE, changed(("auto", "chat"), ("last: 1", "last: 2"))),
    "goose writes it anew": ("goose", "config.yaml", dumped(GOOSE), dumped),
    "flat": ("lm-studio", "mcp.json", FLAT, changed(('"b":1', '"b":2'))),
    "unchanged": ("zed", "settings.json", ZED, str),
}  # fmt: skip


def acted(folder: Path, client: str, name: str, before: str | None, moved: tuple[str, ...]) -> FileState:
    """The state of a file into which the hub was put, and out of which these servers moved."""
    path, place = folder / name, CLIENTS[client].places[-1]
    if before is not None:
        path.write_bytes(before.encode())
    key = place.layouts[-1].key
    step = plan_install(ClientFile(CLIENTS[client], path, place), SOURCE, {}, [(*key, one) for one in moved])
    assert step.change is not None and step.problem is None
    content = None if before is None else before.encode()
    state = state_of(path, content, step.change.entries)
    state.change_to(step.change.edit(content))
    assert state.content_after() == step.change.edit(content)
    return state


def after(state: FileState) -> str:
    return (state.content_after() or b"").decode()


@pytest.mark.parametrize("row", ROWS)
def test_file_is_as_if_the_hub_had_never_been_there(tmp_path: Path, row: str) -> None:
    client, name, before, rewrite = ROWS[row]
    state = acted(tmp_path, client, name, before, ("one", "two"))
    result = restored(rewrite(after(state)).encode(), state)
    assert not result.problems and list(result.back) == ["one", "two"]
    assert (result.content or b"").decode() == rewrite(before)


def test_entries_keep_their_comments_in_a_file_that_was_written_anew(tmp_path: Path) -> None:
    state = acted(tmp_path, "vscode", "mcp.json", VSCODE, ("one", "two"))
    result = restored(spaced(after(state)).encode(), state)
    text = (result.content or b"").decode()
    assert not result.problems and "mcp-hub" not in text and '"command": "x", // c\n' in text
    assert text.index('"one"') < text.index('"two"') < text.index('"stays"')


def test_entries_of_a_list_come_back_to_their_neighbours(tmp_path: Path) -> None:
    path, place = tmp_path / "config.yaml", CLIENTS["continue"].places[0]
    path.write_text(CONTINUE)
    moved: list[KeyPath] = [("mcpServers", 2), ("mcpServers", 0)]
    step = plan_move(ClientFile(CLIENTS["continue"], path, place), moved)
    assert step.change is not None and step.change.entries == [("mcpServers", "two"), ("mcpServers", "one")]
    state = state_of(path, CONTINUE.encode(), step.change.entries)
    state.change_to(step.change.edit(CONTINUE.encode()))
    rewrite = changed(("name: me", "name: you"), ("command: y", "command: z"))
    assert restored(rewrite(after(state)).encode(), state).content == rewrite(CONTINUE).encode()
    anew = yaml.safe_dump(yaml.safe_load(after(state)), sort_keys=False)
    data: Any = yaml.safe_load(restored(anew.encode(), state).content or b"")
    assert data == yaml.safe_load(CONTINUE)


def test_servers_of_another_yaml_file_come_back_with_texts_of_several_lines() -> None:
    before = (
        "version: 1.2\n\nmcpServers:\n  # about\n  one:\n    command: x\n    serverInstructions: hi\nendpoints: {}\n"
    )
    state = state_of(Path("librechat.yaml"), before.encode(), [("mcpServers", "one")])
    state.change_to(remove(before, "librechat.yaml", ("mcpServers", "one")).encode())
    now = yaml.safe_dump({**yaml.safe_load(after(state)), "cache": True}, sort_keys=False)
    text = (restored(now.encode(), state).content or b"").decode()
    assert "  one:\n    command: x\n    serverInstructions: hi\n" in text and "cache: true" in text


@pytest.mark.parametrize(
    ("client", "name", "added", "expected"),
    [
        ("cursor", "mcp.json", ("{\n", '{\n  "mine": 1,\n'), '{\n  "mine": 1\n}\n'),
        ("codex", "config.toml", ("[", 'model = "a"\n['), 'model = "a"\n'),
        ("continue", "mcp-hub.yaml", ("name: ", "# by me\nname: "), None),
        ("cursor", "mcp.json", ('"mcpServers": {', '"mcpServers": {\n    "own": {"command": "y"},'), "own"),
    ],
)
def test_new_file_of_the_hub_keeps_what_the_client_put_there(
    tmp_path: Path, client: str, name: str, added: tuple[str, str], expected: str | None
) -> None:
    state = acted(tmp_path, client, name, None, ())
    text = restored(changed(added)(after(state)).encode(), state).content
    if expected == "own":
        assert json.loads(text or b"") == {"mcpServers": {"own": {"command": "y"}}}
    else:
        assert text == (None if expected is None else expected.encode())
    assert restored(state.content_after(), state).content is None


def test_entry_that_is_there_again_stays_and_is_named_with_its_line(tmp_path: Path) -> None:
    state = acted(tmp_path, "zed", "settings.json", ZED, ("one", "two"))
    now = changed(('"context_servers": {', '"context_servers": {\n    "one": {"command": "new"},'))(after(state))
    result = restored(now.encode(), state)
    assert result.problems == [f"{tmp_path / 'settings.json'}:5: one has been changed since, and stays as it is."]
    assert list(result.back) == ["two"] and b'"command": "new"' in (result.content or b"")
    assert b"mcp-hub" not in (result.content or b"")


@pytest.mark.parametrize(
    ("content", "said"),
    [(b'{\n  "a": \n', "settings.json:3: not valid JSON"), (b"\xff\xfe{", "not UTF-8"), (None, "is gone, and one")],
)
def test_file_that_cannot_be_read_is_named_and_left_alone(tmp_path: Path, content: bytes | None, said: str) -> None:
    state = acted(tmp_path, "zed", "settings.json", ZED, ("one",))
    result = restored(content, state)
    assert result.content == content and said in result.problems[0]


def test_two_changes_are_turned_back_as_one_and_what_came_between_stays(tmp_path: Path) -> None:
    first = acted(tmp_path, "codex", "config.toml", CODEX, ())
    between = changed(('model = "a"', 'model = "b"'))(after(first))
    second = acted(tmp_path, "codex", "config.toml", between, ("one", "two"))
    both = composed(first, second)
    assert both.content_after() == second.content_after()
    content = restored(second.content_after(), both).content or b""
    assert content.decode() == changed(('model = "a"', 'model = "b"'))(CODEX)
    assert tomllib.loads(content.decode())["mcp_servers"].keys() == {"one", "two"}


@pytest.mark.parametrize(("name", "is_back"), [(f"a.{form}", back) for form in FORMS for back in (True, False)])
def test_many_entries_of_a_rewritten_file_are_read_a_few_times(
    name: str, is_back: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, places = FORMS[name[2:]]
    reads: list[str] = []

    def read(text: str, file: str) -> object:
        reads.append(file)
        return read_data(text, file)

    monkeypatch.setattr(entries, "read_data", read)
    places.cache_clear()
    servers = {f"s{number}": {"command": f"c{number}", "args": ["x"] * 4} for number in range(60)}
    hub = {"mcp-hub": {"command": "mcp-hub"}}
    old, new = (servers, hub) if is_back else (hub, {**hub, **servers})
    paths = [("servers", one) for one in {**servers, **hub}]
    state = state_of(Path(f"/x/{name}"), write({"servers": old}).encode(), paths)
    state.change_to(write({"servers": new}).encode())
    result = restored(write({"more": 1, "servers": new}).replace("command =", "command  =").encode(), state)
    assert not result.problems and result.content is not None
    data: Any = read_data(result.content.decode(), name)
    assert data == {"more": 1, "servers": old} and [*data["servers"]] == [*old]
    assert len(reads) < 12 and places.cache_info().misses < 12, "however many servers there are"


def _toml(data: Any) -> Iterator[str]:
    yield "more = 1\n" if "more" in data else ""
    for name, own in data["servers"].items():
        yield f"[servers.{name}]\ncommand = {json.dumps(own['command'])}\n"
        yield f"args = {json.dumps(own['args'])}\n" if "args" in own else ""
