"""`mcp-hub add DOMAIN`: documents of strangers, good ones and attacks."""

import gzip
import json
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
import yaml

from mcp_hub.errors import ConfigError
from mcp_hub.onboarding.registry import documents
from mcp_hub.onboarding.registry.documents import refused_remote
from mcp_hub.upstreams.auth import addresses
from tests.unit.cli.homes import CANARIES, run
from tests.unit.cli.sites import CARD, CATALOG, WELL_KNOWN, Site

SCHEMA: Final = "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"
FAR: Final = "https://example.com/.well-known/ai-catalog.json"


def card(url: str = "https://mcp.example.com/mcp", name: str = "com.example/weather", **more: Any) -> Any:
    remote = {"type": "streamable-http", "url": url, **more.pop("remote", {})}
    return {
        "$schema": SCHEMA,
        "name": name,
        "version": "2.1.0",
        "description": "The weather.",
        "remotes": [remote],
        **more,
    }


def listed(url: object, identifier: str = "urn:air:example.com:mcp:weather", **more: Any) -> Any:
    return {"identifier": identifier, "type": CARD, "url": url, **more}


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person at a terminal, who types the `answers` of `run`."""
    from click.testing import _NamedTextIOWrapper

    monkeypatch.setattr(_NamedTextIOWrapper, "isatty", lambda self: self.name == "<stdin>", raising=False)


def servers(file: Path) -> Any:
    return yaml.safe_load(file.read_text())["servers"]


def test_domain_with_one_server_is_added_like_its_url(small_file: Path, site: Site) -> None:
    site.catalog(listed(f"{site.url}/mcp/server-card"), {"identifier": "x", "type": "application/a2a-agent-card+json"})
    site.put("/mcp/server-card", card(title="Weather", websiteUrl="https://example.com"))
    before = small_file.read_bytes()
    asked = run("add", site.place, code=2).stderr
    assert "[no_terminal]" in asked and small_file.read_bytes() == before, "nothing is written before somebody agrees"
    assert "  Weather (com.example/weather 2.1.0)\n  The weather.\n  https://example.com\n" in asked
    assert f"  from {site.url}/mcp/server-card\n" in asked and "weather: https://mcp.example.com/mcp" in asked
    assert [path for path, _ in site.asked] == [WELL_KNOWN, "/mcp/server-card"]
    assert all(accept.startswith(CARD) and CATALOG in accept for _, accept in site.asked)
    run("add", site.place, "--yes")
    added = small_file.read_bytes()
    run("remove", "weather")
    run("add", "weather", "https://mcp.example.com/mcp")
    assert small_file.read_bytes() == added and servers(small_file)["weather"] == {"url": "https://mcp.example.com/mcp"}
    run("remove", "weather")
    for source in (site.url, f"{site.url}/", f"{site.url}{WELL_KNOWN}", f"{site.url}/mcp/server-card"):
        run("add", source, "--yes", "--replace", "--name", "w")
        assert servers(small_file)["w"] == {"url": "https://mcp.example.com/mcp"}, source


def test_one_of_several_servers_is_chosen_by_its_name(small_file: Path, site: Site) -> None:
    site.catalog(*(listed(f"{site.url}/{name}", f"urn:air:example.com:mcp:{name}") for name in ("weather", "traffic")))
    site.put("/traffic", card(name="com.example/traffic"))
    refused = run("add", site.place, "--yes", code=2).stderr
    assert f"  weather  {site.url}/weather\n  traffic  {site.url}/traffic\n" in refused and "[no_terminal]" in refused
    assert "Choose one with --entry NAME" in refused
    assert 'Did you mean "traffic"' in run("add", site.place, "--entry", "trafic", "--yes", code=2).stderr
    run("add", site.place, "--entry", "traffic", "--yes")
    assert servers(small_file)["traffic"] == {"url": "https://mcp.example.com/mcp"}


@pytest.mark.usefixtures("terminal")
def test_person_at_a_terminal_chooses_types_what_is_needed_and_agrees(
    small_file: Path, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = {"name": "Authorization", "value": "Bearer {token}", "isRequired": True,
              "variables": {"token": {"isSecret": True, "description": "Key of\x1b[2J the service"}}}  # fmt: skip
    remote = {"url": "https://{tenant}.example.com/mcp", "headers": [header], "variables": {"tenant": {}}}
    site.catalog(listed("/one"), listed("/two", "urn:air:example.com:mcp:mail"))
    site.put("/two", card(name="com.example/mail", remote=remote))
    done = run("add", site.place, answers=f"mail\nacme\ny\n{CANARIES[0]}\n")
    assert servers(small_file)["mail"] == {
        "url": "https://acme.example.com/mcp", "headers": {"Authorization": "Bearer ${file:secrets/mail.token}"},
    }  # fmt: skip
    assert (small_file.parent / "secrets" / "mail.token").read_text() == f"{CANARIES[0]}\n"
    assert done.stderr.index("Add this server?") < done.stderr.index("Key of"), "a secret is asked for last"
    assert "\x1b" not in done.output
    later = run("add", site.place, "--replace", answers="mail\n\ny\n\n")
    assert servers(small_file)["mail"]["headers"] == {"Authorization": "Bearer ${TOKEN}"} and "TOKEN" in later.stderr
    before = small_file.read_bytes()
    run("add", site.place, "--replace", answers="mail\n\nn\n", code=1)
    assert small_file.read_bytes() == before
    monkeypatch.setenv("TOKEN", CANARIES[0])
    with_variable = run("add", site.place, "--replace", answers="mail\nacme\ny\n").stderr
    assert "It gets the values of your variables: TOKEN" in with_variable and "Key of" not in with_variable


def test_server_in_the_catalog_itself_and_packages_of_cards(small_file: Path, site: Site) -> None:
    package = {"registryType": "npm", "identifier": "evil", "transport": {"type": "stdio"}}
    site.catalog({"identifier": "urn:x:y", "type": f"{CARD}; v=1", "data": card(packages=[package])})
    run("add", site.place, "--yes")
    assert servers(small_file)["weather"] == {"url": "https://mcp.example.com/mcp"}
    local = {"name": "a/b", "packages": [package]}
    for document in (local, {**local, "$schema": SCHEMA}):
        site.catalog(listed("/card"))
        site.put("/card", document)
        assert "[unsupported_package]" in run("add", site.place, "--yes", code=2).stderr, "a card runs nothing"
    site.put("/card", {**local, "$schema": SCHEMA})
    assert "[unsupported_package]" in run("add", f"{site.url}/card", "--yes", code=2).stderr


ODD: Final = ("../../etc/passwd", "\x1b[31mred\x1b[0m", "a\u202eb", "x\r\ny", "weather", "weather", "", "x" * 300)


def test_odd_and_equal_names_are_data_and_each_can_be_chosen(small_file: Path, site: Site) -> None:
    site.catalog(*(listed(f"/{n}", f"urn:air:example.com:mcp:{name}") for n, name in enumerate(ODD)), 7, None, [],
                 {"identifier": 5}, listed(3), listed(None), {**listed("/b"), "data": {}})  # fmt: skip
    site.put("/5", card(name="com.example/second"))
    shown = run("add", site.place, "--yes", code=2).stderr
    assert not {"\x1b", "\u202e", "\r"} & {*shown} and "x" * 250 not in shown
    assert "  urn:air:example.com:mcp:weather  /5\n" in shown and shown.count("  weather  ") == 1
    run("add", site.place, "--entry", "urn:air:example.com:mcp:weather", "--yes")
    assert "second" in servers(small_file)
    site.put("/0", card(name="com.example/..\x1b]0;t"))
    before = small_file.read_bytes()
    refused = run("add", site.place, "--entry", ODD[0], "--yes", code=2).stderr
    assert "[invalid_value]" in refused and "\x1b" not in refused and small_file.read_bytes() == before


BAD_URLS: Final = ("file:///etc/passwd", "javascript:alert(1)", "data:,x", "ftp://x.example/", "http://[::1",
                   "https://u:p@x.example/", "https://x.example\\@10.0.0.1/", "https://x y/", "https://\u202e.example/",
                   "http://x.example/mcp", "http://169.254.169.254/", "https://[fe80::1]/", "https:///x")  # fmt: skip


@pytest.mark.parametrize("url", BAD_URLS)
def test_card_and_catalog_name_no_odd_urls(small_file: Path, site: Site, url: str) -> None:
    before = small_file.read_bytes()
    site.catalog(listed("/card"))
    site.put("/card", card(url))
    assert "[invalid_url]" in run("add", site.place, "--yes", code=2).stderr, "of the server"
    site.catalog(listed(url))
    refused = run("add", site.place, "--yes", code=2).stderr
    assert "[invalid_url]" in refused or "[fetch_failed]" in refused, "of the card"
    site.move("/moved", url)
    refused = run("add", f"{site.url}/moved", "--yes", code=2).stderr
    assert "[invalid_url]" in refused or "[fetch_failed]" in refused, "of a redirect"
    assert small_file.read_bytes() == before


PRIVATE: Final = ("10.0.0.5", "172.16.0.1", "192.168.1.1", "127.0.0.1", "127.1", "0x7f.1", "2130706433", "0177.0.0.1",
                  "0", "169.254.169.254", "100.64.0.1", "[::1]", "[::]", "[fd00::1]", "[::ffff:10.0.0.5]",
                  "[64:ff9b::a00:5]", "[2002:a00:5::]", "localhost", "x.localhost", "localhost.", "127.0.0.1.",
                  "%31%30.0.0.5", "224.0.0.1", "198.18.0.1")  # fmt: skip


@pytest.mark.parametrize("host", PRIVATE)
def test_document_of_a_stranger_leads_to_no_inner_address_in_any_spelling(host: str) -> None:
    for scheme in ("https", "http"):
        with pytest.raises(ConfigError) as refused:
            documents.fetched(f"{scheme}://{host}/x", FAR)
        assert "refused" in str(refused.value) or refused.value.code == "invalid_url"
        assert refused_remote(f"{scheme}://{host}/mcp", FAR) is not None


Reply = tuple[int, dict[str, str], bytes]
"""Status, headers, body."""


class Far(httpx2.AsyncBaseTransport):
    """The network: answers by path, and the addresses that were asked."""

    def __init__(self, answers: Mapping[str, Reply]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(f"{request.url.host}{request.url.path}")
        status, headers, body = self.answers.get(request.url.path, (404, {}, b""))
        return httpx2.Response(status, headers=headers, stream=httpx2.ByteStream(body))


def network(monkeypatch: pytest.MonkeyPatch, names: Mapping[str, str], answers: Mapping[str, Reply]) -> Far:
    far = Far(answers)

    async def resolved(host: str) -> list[Any]:
        return [ip_address(text) for text in names[host].split()]

    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(addresses, "resolved", resolved)
    monkeypatch.setattr(httpx2, "AsyncHTTPTransport", lambda **_: far)
    return far


def json_of(document: object) -> Reply:
    return 200, {"content-type": "application/json"}, json.dumps(document).encode()


@pytest.mark.parametrize("inner", ["10.0.0.5", "127.0.0.1", "169.254.169.254", "::1", "fd00::1", "::ffff:10.0.0.5"])
@pytest.mark.parametrize("way", ["redirect", "catalog"])
def test_names_that_lead_to_inner_addresses_are_not_followed(
    small_file: Path, monkeypatch: pytest.MonkeyPatch, inner: str, way: str
) -> None:
    away = "https://inner.example/card"
    moved = (302, {"location": away}, b"")
    first = {"redirect": moved, "catalog": json_of({"specVersion": "1.0", "entries": [listed(away)]})}[way]
    far = network(
        monkeypatch, {"example.com": "8.8.8.8", "inner.example": inner}, {WELL_KNOWN: first, "/card": json_of(card())}
    )
    refused = run("add", "example.com", "--yes", code=2).stderr
    assert "[fetch_failed]" in refused and "it leads to" in refused and far.asked == [f"8.8.8.8{WELL_KNOWN}"]
    assert "weather" not in servers(small_file)


def test_other_public_hosts_are_followed_a_few_times(small_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"example.com": "8.8.8.8", "www.example.com": "8.8.4.4", "cards.example": "10.0.0.5 1.1.1.1"}
    catalog = json_of({"specVersion": "1.0", "entries": [listed("https://cards.example/card")]})
    moved = (301, {"location": "https://www.example.com/catalog"}, b"")
    far = network(monkeypatch, names, {WELL_KNOWN: moved, "/catalog": catalog, "/card": json_of(card())})
    run("add", "example.com", "--yes")
    assert far.asked == [f"8.8.8.8{WELL_KNOWN}", "8.8.4.4/catalog", "1.1.1.1/card"]
    assert servers(small_file)["weather"] == {"url": "https://mcp.example.com/mcp"}
    loop = (302, {"location": FAR}, b"")
    far = network(monkeypatch, names, {WELL_KNOWN: loop})
    assert "redirects" in run("add", "example.com", "--yes", code=2).stderr and len(far.asked) == 4


DEEP: Final = b'{"entries":' + b"[" * 100_000
HUGE: Final = b'{"specVersion":"1.0","entries":[' + b"1," * (1 << 20)


@pytest.mark.parametrize(
    ("body", "kind", "headers"),
    [
        (HUGE, CATALOG, {}), (DEEP, CATALOG, {}), (b"\xff\xfe", CATALOG, {}), (b"", CATALOG, {}),
        (b"null", CATALOG, {}),
        (b'{"specVersion":"1.0","entries":[]}', "text/html", {}),
        (b"<html>", "text/html", {}), (b"{}", "image/png", {}), (b"{}", "text/html; charset=json", {}),
        (gzip.compress(b" " * (64 << 20)), CATALOG, {"content-encoding": "gzip"}),
        (b"{}", CATALOG, {"content-encoding": "br"}),
        (json.dumps({"entries": [listed("/x", f"urn:{n}") for n in range(201)]}).encode(), CATALOG, {}),
    ],
    ids=["huge", "deep", "bytes", "empty", "null", "disguised", "page", "picture", "parameter", "bomb", "encoding",
         "many"],
)  # fmt: skip
def test_documents_that_are_no_catalogs_or_too_large_are_refused(
    small_file: Path, site: Site, body: bytes, kind: str, headers: dict[str, str]
) -> None:
    before = small_file.read_bytes()
    site.put(WELL_KNOWN, body, kind)
    site.headers[WELL_KNOWN] = headers
    refused = run("add", site.place, "--yes", code=2).stderr
    assert any(f"[{code}]" in refused for code in ("fetch_failed", "invalid_server_json", "config_too_large"))
    site.headers.clear()
    site.catalog(listed("/card"))
    site.put("/card", body, kind)
    site.headers["/card"] = headers
    assert f"{site.url}/card" in run("add", site.place, "--yes", code=2).stderr
    assert small_file.read_bytes() == before


def test_domain_without_servers_and_its_neighbours_say_so(small_file: Path, site: Site) -> None:
    assert "answered with 404" in run("add", site.place, code=2).stderr
    site.catalog()
    assert "lists no MCP server" in run("add", site.place, code=2).stderr
    assert "[no_registry]" in run("add", "io.example/weather", code=2).stderr
    assert "--entry" in run("add", "x", "--entry", "y", "--", "z", code=2).stderr


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("example.com", FAR), ("example.com:8443", "https://example.com:8443/.well-known/ai-catalog.json"),
        ("localhost:80", "http://localhost:80/.well-known/ai-catalog.json"), ("weather", None), ("a.b/c", None),
        ("a@b.c", None), ("x.y?z", None), ("é.example", None), ("1", None), ("x:80", None), ("a.b\\c", None),
    ],
)  # fmt: skip
def test_only_domains_are_taken_for_domains(text: str, url: str | None) -> None:
    assert documents.catalog_url(text) == url
