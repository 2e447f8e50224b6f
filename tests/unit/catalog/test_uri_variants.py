"""Filters on resources hold for whatever a server may make of a URI that it is sent."""

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mcp_hub.catalog.offers.filters import Filter
from mcp_hub.catalog.offers.rules import ServerRules, ViewRules
from mcp_hub.catalog.resources.readings import uri_variants
from mcp_hub.catalog.views.view import CatalogView, build
from mcp_hub.types import Era, Kind, Snapshot
from tests.examples import examples
from tests.unit.catalog.url_oracle import known_as, same

SECRET = [
    *("file:///secret/key", "FILE:///secret/key", "file:/secret/key", "file:secret/key", "file:////secret/key"),
    *("file:///secret//key", "file://localhost/secret/key", "file://LOCALHOST/secret/key", "file:///%73ecret/key"),
    *("file:\\\\\\secret\\key", "file:///secret%2fkey", "file:///pub/../secret/key", "file:///pub/%2e%2E/secret/key"),
    *("file:///pub/..%2fsecret/key", "file:///pub/..\\secret/key", "file:///./secret/key", " file:///secret/key"),
    *("\tfile:///secret/key", "fi\nle:///secret/key", "file:///sec\tret/key", "file:///secret/key\u2003"),
    *("file:///secret/key?", "file:///secret/key#", "file:///secret/key?a=1#b", "file:///secret/key;x"),
    *("vault:main", "vault:main/", "vault:main?x", "VAULT:main", "Vault://Main/x", "vault:m%61in"),
    *("https://inner.example/a", "HTTPS://INNER.example/a", "https://inner.example:443/a", "https:inner.example/a"),
    *("https://x@inner.example/a", "https://inner.example./a", "https://inn%65r.example/a", "file:///secret/"),
    *(
        "https://ｉnner.example/a",
        "https:///inner.example/a",
        "https://in\u00adner.example/a",
        "https:\\\\inner.example/a",
    ),
    *("http://127.0.0.1/", "http://0x7f.0.0.1/", "http://2130706433/", "http://127.1/", "http://[::0001]/"),
    *("git://repo/x", "git://REPO/x", "git://me@repo/x"),
]
OPEN = [
    *("file:///pub/a b", "file:///pub/%C3%A9?q=../..#..", "note:a%0Ab", "memo", "x:", "https://example.org:8080/%2F"),
    *("", "note://internal/Summary", "https://[::2]/", "a:b:c", "file://host/share", "https://bücher.example/"),
    *("app://./index.html", "x://../y", "https://user@example.com/x", "file:///secrets", "file:///secret/key.txt"),
]
DENY = Filter(
    deny=(
        *("file:///secret/key", "file:///secret", "vault:main", "vault://main/x", "https://inner.example/*"),
        *("http://127.0.0.1/*", "http://[[]::1]/*", "git://repo/*"),
    )
)


def catalog(resources: Filter, *listed: bytes, templates: tuple[bytes, ...] = (), tell: bool = False) -> CatalogView:
    lists = {Kind.RESOURCE: listed, Kind.TEMPLATE: templates}
    shown = Snapshot("a", Era.HANDSHAKE, lists, capabilities={"resources": {}})
    if tell:
        return build([shown], ViewRules({"a": ServerRules()}, resources=resources))
    return build([shown], ViewRules({"a": ServerRules(resources=resources)}))


@pytest.mark.parametrize("of_profile", [False, True])
@pytest.mark.parametrize("uri", SECRET)
def test_what_is_denied_is_denied_in_every_spelling(uri: str, of_profile: bool) -> None:
    view = catalog(DENY, tell=of_profile)
    assert view.resolve_uri(uri) is None and view.resolve_uri(f"hub://a/{uri}") is None


@pytest.mark.parametrize("uri", OPEN)
def test_what_is_not_denied_is_passed_on_as_it_is_spelled(uri: str) -> None:
    assert catalog(DENY).resolve_uri(uri) == ("a", uri)
    assert catalog(DENY).resolve_uri(f"hub://a/{uri}") == ("a", uri)


@pytest.mark.parametrize("uri", [*SECRET, *OPEN])
def test_where_nothing_is_filtered_every_spelling_is_passed_on(uri: str) -> None:
    assert catalog(Filter()).resolve_uri(uri) == ("a", uri)


def test_user_in_a_uri_hides_no_host() -> None:
    view = catalog(Filter(allow=("https://good.example*",)))
    assert view.resolve_uri("https://good.example/a") is not None
    assert view.resolve_uri("https://good.example@bad.example/a") is None


def test_what_is_allowed_leads_nowhere_else() -> None:
    view = catalog(Filter(allow=("file:///pub/*", "file:///[!s]*", "Git:*")), templates=(b'{"uriTemplate":"x:{+p}"}',))
    for uri in ("file:///pub/a", "file:///pub/a%20b", "file:///other/a", "Git:x"):
        assert view.resolve_uri(uri) == ("a", uri)
    for uri in ("file:///pub/../secret", "file:///pub/%2e./secret", "file:///%73ecret", "file:///./secret", "git:x"):
        assert view.resolve_uri(uri) is None, uri


def test_what_a_template_gives_leads_nowhere_else() -> None:
    offered = (b'{"uriTemplate":"file:///pub/{+path}","name":"n"}',)
    view = catalog(Filter(allow=("file:///pub/*",)), templates=offered)
    assert view.resolve_uri("file:///pub/a/b") == ("a", "file:///pub/a/b")
    assert view.resolve_uri("file:///pub/../secret") is None


def test_hidden_template_gives_nothing_in_any_spelling() -> None:
    offered = (b'{"uriTemplate":"file:///{name}","name":"n"}',)
    view = catalog(Filter(deny=("file:///{name}",)), templates=offered)
    for uri in ("file:///x", "FILE:///x", "file:/x"):
        assert view.resolve_uri(uri) is None, uri
    assert view.resolve_uri("file:///x/y") == ("a", "file:///x/y")


@pytest.mark.parametrize("length", [8_190, 8_200, 1_000_000])
@pytest.mark.parametrize("unit", ["ü", "ü.", "%2e", "/", "a", "%C3%BC", "[", "@", ":"])
def test_a_long_uri_takes_no_time(unit: str, length: int) -> None:
    began = time.process_time()
    for start in ("https://", "file:", "x://", "x:"):
        uri_variants(start + unit * (length // len(unit)))
    assert time.process_time() - began < 2, "a guard against hanging: a hundredth of it is usual"


@example("HTTP:@\\0")
@given(st.text(max_size=30) | st.from_regex(r"\A(file|https|x):/{0,4}[a-z.%2eF/\\@:?#\[\]0-9]{0,20}\Z"))
def test_any_text_has_itself_among_its_spellings_or_none(uri: str) -> None:
    told = uri_variants(uri)
    if told is not None:
        assert told.allowed[0] == told.denied[0] == uri
        again = uri_variants(told.allowed[1])
        assert again is not None and again.allowed[1] == told.allowed[1], "what is made of it stays as it is"


_PARTS = [
    *("/", "//", "///", "\\", "..", ".", "%2e", "%2E%2e", "%2f", "%5c", "%41", "%73", "secret", "Key", "a", "C:", "c|"),
    *("example.com", "EXAMPLE.com", ":443", ":80", ":21", ":", "@", "user", "?", "#", "?q=..", "[::1]", "127.0.0.1"),
    *(
        "0x7f.1",
        "1",
        "ü",
        "%C3%BC",
        "\u00ad",
        "ｅ",
        " ",
        "\t",
        "\n",
        "localhost",
        "xn--bcher-kva",
        "。",
        "|",
        "*",
        ";",
        "&",
    ),
]
_STARTS = ["file:", "FILE:///", "https://", "https:", "ws://a", "vault://Main/", "X:", "x://", "http://example.com"]


@given(st.sampled_from(_STARTS), st.lists(st.sampled_from(_PARTS), max_size=8))
@settings(max_examples=examples(500))
def test_what_a_server_makes_of_it_is_among_what_filters_look_at(start: str, parts: list[str]) -> None:
    uri = start + "".join(parts)
    told, there = uri_variants(uri), known_as(uri)
    if told is not None and there is not None and "@" not in there:
        assert same(there) in {form for text in told.denied for form in (text.rstrip("/"), same(text))}
