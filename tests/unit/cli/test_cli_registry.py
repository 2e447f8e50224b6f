"""`mcp-hub registry search`, and what a page offers of a registry's answer."""

import json
from pathlib import Path
from typing import Any

import yaml

from mcp_hub.onboarding.registry.documents import offers_of, read_card, row_of, servers_of_catalog
from tests.unit.cli.homes import run
from tests.unit.cli.sites import Site


def servers(file: Path) -> Any:
    return yaml.safe_load(file.read_text())["servers"]


def page(*items: object, cursor: str | None = None) -> Any:
    return {"servers": items, "metadata": {"count": len(items), **({"nextCursor": cursor} if cursor else {})}}


def item(name: str, status: str = "active", **more: Any) -> Any:
    package = {"registryType": "npm", "identifier": "@x/y", "version": "1.2.3", "transport": {"type": "stdio"}}
    server = {"name": name, "description": "D", "version": "1.0", "packages": [package], **more}
    return {"server": server, "_meta": {"io.modelcontextprotocol.registry/official": {"status": status}}}


def test_registry_is_searched_page_by_page_and_a_server_is_added_from_the_result(small_file: Path, site: Site) -> None:
    small_file.write_text(f"hub: {{registry: '{site.url}/base/'}}\n")
    first = "/base/v0.1/servers?search=wea+ther&version=latest&limit=3"
    remote = {"type": "streamable-http", "url": "https://w.example/mcp"}
    gone = item("io.example/gone", "deleted")
    site.put(
        first,
        page(item("io.example/weather", remotes=[remote]), gone, 7, {"server": {}}, cursor="c/2"),
        "application/json",
    )
    odd = item("a\x1b[2J\u202e", description="x" * 900)
    second = page(item("io.example/weather"), item("io.example/old", "deprecated"), odd)
    site.put(f"{first}&cursor=c%2F2", second, "application/json")
    shown = run("registry", "search", "wea", "ther", "--limit", "3")
    assert not {"\x1b", "\u202e"} & {*shown.output} and "x" * 300 not in shown.output
    assert "io.example/weather" in shown.stdout and "url, npm" in shown.stdout and "deprecated: D" in shown.stdout
    assert "gone" not in shown.stdout and "mcp-hub add io.example/weather" in shown.stderr
    document = json.loads(run("registry", "search", "wea ther", "--limit", "3", "--json").stdout)
    assert [each["name"] for each in document["servers"]] == ["io.example/weather", "io.example/old", "a\x1b[2J\u202e"]
    assert document["servers"][0]["kinds"] == ["url", "npm"] and document["registry"] == f"{site.url}/base/"
    site.put("/base/v0.1/servers/io.example%2Fweather/versions/latest", item("io.example/weather", remotes=[remote]))
    assert "npx -y @x/y@1.2.3" in run("add", "io.example/weather", code=2).stderr
    run("add", "io.example/weather", "--remote", "--yes")
    assert servers(small_file) == {"weather": {"url": "https://w.example/mcp"}}


def test_search_without_a_registry_or_a_result_or_an_end(small_file: Path, site: Site) -> None:
    assert "[no_registry]" in run("registry", "search", "x", code=2).stderr
    small_file.write_text(f"hub: {{registry: '{site.url}'}}\n")
    first = "/v0.1/servers?search=x&version=latest&limit=20"
    assert "[fetch_failed]" in run("registry", "search", "x", code=2).stderr
    site.put(first, page(), "application/json")
    assert "no such server" in run("registry", "search", "x", code=1).stderr
    for bad in (b"[]", b'{"servers": 5}', b"[" * 100_000, b'{"servers": [], "metadata": {"nextCursor": 5}}'):
        site.put(first, bad, "application/json")
        assert "[invalid_server_json]" in run("registry", "search", "x", code=2).stderr
    site.put(first, page(cursor="c"), "application/json")
    site.put(f"{first}&cursor=c", page(cursor="c"), "application/json")
    site.asked.clear()
    run("registry", "search", "x", code=1)
    assert len(site.asked) == 5, "a registry without an end is read for five pages"


def test_page_gets_entries_that_are_neither_dangerous_nor_lead_inside() -> None:
    def offers(document: object, source: str = "https://registry.example") -> dict[str, str]:
        return dict(offers_of(read_card(json.dumps(document).encode(), source), source))

    good = item("a/b", remotes=[{"type": "sse", "url": "https://x.example/{t}", "variables": {"t": {}}}])["server"]
    package = "command: npx\nargs: [-y, '@x/y@1.2.3']"
    assert {kind: yaml.safe_load(text) for kind, text in offers(good).items()} == {
        "remote": {"url": "https://x.example/${T}", "type": "sse"}, "package": yaml.safe_load(package),
    }  # fmt: skip
    for url in ("https://10.0.0.5/", "http://x.example/", "javascript:x", "https://127.1/"):
        assert offers({**good, "remotes": [{"type": "sse", "url": url}]}).keys() == {"package"}
    danger = {**good["packages"][0], "runtimeArguments": [{"type": "positional", "value": "-c"}]}
    assert offers({**good, "packages": [danger]}).keys() == {"remote"}
    assert offers({"name": "a/b"}) == {}
    invisible = {**good["packages"][0], "packageArguments": [{"type": "positional", "value": "\u202e"}]}
    assert offers({"name": "a/b", "packages": [invisible]}) == {}
    assert servers_of_catalog(b"[]", "x") is None


def test_row_of_a_page_has_short_texts_and_a_safe_name() -> None:
    odd = item("a/../../x y\x1b[2J" + "z" * 100, description="D" * 900, status="x")["server"]
    row = row_of(read_card(json.dumps(odd).encode(), "https://r.example"), "https://r.example")
    assert len(row["description"]) == 300 and row["deprecated"] is False and row["package"].startswith("command: npx")
    assert len(row["short"]) <= 64 and row["short"].startswith("x-y-") and not {"/", "\x1b", " "} & {*row["short"]}
