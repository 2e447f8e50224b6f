"""Filters on resources hold for every spelling, nesting and encoding of a URI."""

import time
from collections.abc import Callable
from urllib.parse import quote

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mcp_hub.catalog.offers.filters import Filter, Selector
from mcp_hub.catalog.offers.rules import ServerRules, ViewRules
from mcp_hub.catalog.resources import readings as module
from mcp_hub.catalog.resources.readings import readings, uri_variants
from mcp_hub.catalog.views.entries import Entry
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
        "https://\uff49nner.example/a https:///inner.example/a https://in\xadner.example/a https:\\\\inner.example/a"
    ).split(),
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


def catalog(
    resources: Filter, *listed: bytes, templates: tuple[bytes, ...] = (), of_profile: bool = False
) -> CatalogView:
    lists = {Kind.RESOURCE: listed, Kind.TEMPLATE: templates}
    shown = Snapshot("team", Era.HANDSHAKE, lists, capabilities={"resources": {}})
    if of_profile:
        return build([shown], ViewRules({"team": ServerRules()}, resources=resources))
    return build([shown], ViewRules({"team": ServerRules(resources=resources)}))


@pytest.mark.parametrize("uri", [*SECRET, *OPEN])
def test_where_nothing_is_filtered_every_spelling_is_passed_on(uri: str) -> None:
    assert catalog(Filter()).resolve_uri(uri) == ("team", uri)


def test_user_in_a_uri_hides_no_host() -> None:
    view = catalog(Filter(allow=("https://good.example*",)))
    assert view.resolve_uri("https://good.example/a") is not None
    assert view.resolve_uri("https://good.example@bad.example/a") is None


def test_what_is_allowed_leads_nowhere_else() -> None:
    view = catalog(Filter(allow=("file:///pub/*", "file:///[!s]*", "Git:*")), templates=(b'{"uriTemplate":"x:{+p}"}',))
    for uri in ("file:///pub/a", "file:///pub/a%20b", "file:///other/a", "Git:x"):
        assert view.resolve_uri(uri) == ("team", uri)
    for uri in ("file:///pub/../secret", "file:///pub/%2e./secret", "file:///%73ecret", "file:///./secret", "git:x"):
        assert view.resolve_uri(uri) is None, uri


def test_what_a_template_gives_leads_nowhere_else() -> None:
    offered = (b'{"uriTemplate":"file:///pub/{+path}","name":"n"}',)
    view = catalog(Filter(allow=("file:///pub/*",)), templates=offered)
    assert view.resolve_uri("file:///pub/a/b") == ("team", "file:///pub/a/b")
    assert view.resolve_uri("file:///pub/../secret") is None


def test_hidden_template_gives_nothing_in_any_spelling() -> None:
    offered = (b'{"uriTemplate":"file:///{name}","name":"n"}',)
    view = catalog(Filter(deny=("file:///{name}",)), templates=offered)
    for uri in ("file:///x", "FILE:///x", "file:/x"):
        assert view.resolve_uri(uri) is None, uri
    assert view.resolve_uri("file:///x/y") == ("team", "file:///x/y")


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
    *(" ", "\t", "\n", *"0x7f.1 1 \xfc %C3%BC \xad \uff45 localhost xn--bcher-kva \u3002 | * ; &".split()),
]
_STARTS = ["file:", "FILE:///", "https://", "https:", "ws://a", "vault://Main/", "X:", "x://", "http://example.com"]


@given(st.sampled_from(_STARTS), st.lists(st.sampled_from(_PARTS), max_size=8))
@settings(max_examples=examples(500))
def test_what_a_server_makes_of_it_is_among_what_filters_look_at(start: str, parts: list[str]) -> None:
    uri = start + "".join(parts)
    told, there = uri_variants(uri), known_as(uri)
    if told is not None and there is not None and "@" not in there:
        assert same(there) in {form for text in told.denied for form in (text.rstrip("/"), same(text))}


# -- nested and encoded

PRIVATE = Filter(
    deny=("file:///priv/*", "vault:main", "https://bücher.example/*", "file:///My%20Docs/*", "memo", "ui://priv/*")
)
NESTED = [
    *("hub://files/file:///priv/b", "hub://files!1/file%3A%2F%2F%2Fpriv%2Fb", "hub://a/hub://b/hub://c/file:///priv/b"),
    *("hub://b!2/hub%3A%2F%2Fc%211%2Ffile%253A%252F%252F%252Fpriv%252Fb", "hub://files/vault:main", "hub://b!1/memo"),
    *("view-source:file:///priv/b", "jar:file:///priv/b!/c", "proxy:?url=file:///priv/b", "x://h/?u=vault%3Amain"),
    *("ui://b!/priv/x", "ui://b!1/ui%3A%2F%2Fpriv%2Fx", "ui://a!/b!/priv/x", "ui://B!/PRIV/x"),
    *("HUB://files/file:///priv/b", "hub://files/\ufefffile:///priv/b", "hub://files/file:///priv/b?x=1"),
]
SPELLINGS = [
    *("\ufefffile:///priv/b", "file:///\u200bpriv/b", "file:///PRIV/b", "FILE:///Priv/B", "file:///priv%5cb"),
    *("file:///%2570riv/b", "file:///%252570riv/b", "file:///ｐriv/b", "file:///%EF%BD%90riv/b", "file:///priv%09/b"),
    *("file:///priv//b", "file:///priv./b", "file:///priv%20/b", "file:///priv;v=1/b", "file:///x%252e%252e/../priv/b"),
    *("file:///x/%252e%252e/priv/b", "file:///pr\u0131v/%c0%af", "file:///x%00/b", "file:///a%ff", "vault:M%61in"),
    *("https://xn--bcher-kva.example/a", "https://b%C3%BCcher.example/a", "https://BÜCHER.example/a"),
    *("file:///my docs/a", "file:///My%20Docs/a", "file:///my%2520docs/a", "MEMO", "me\u00admo"),
]
UNDENIED = [
    *("ui://b!/pub/x", "ui://b/priv/x"),
    *("file:///pub/b", "hub://files/file:///pub/b", "file:///private", "vault:mainly", "file:///pub/100%", "memos"),
    *("file:///pub/%E2%82%AC%20x", "note:at 10:30 with x:y", "hub://b!1/note%3Aa%0Ab", "x://h/?u=file:///pub/b"),
]


def names(found: tuple[Entry, ...]) -> list[str]:
    return [entry.key for entry in found]


def in_each_form(uri: str) -> tuple[str, ...]:
    return (uri, f"hub://team/{uri}", f"hub://team!1/{quote(uri, safe='')}")


@pytest.mark.parametrize("of_profile", [False, True])
@pytest.mark.parametrize("uri", [*SECRET, *NESTED, *SPELLINGS])
def test_what_is_denied_is_denied_in_every_spelling_nested_and_decoded(uri: str, of_profile: bool) -> None:
    denying = catalog(DENY if uri in SECRET else PRIVATE, of_profile=of_profile)
    for asked in in_each_form(uri):
        assert denying.resolve_uri(asked) is None, asked


@pytest.mark.parametrize("uri", [*OPEN, *UNDENIED])
def test_what_a_deny_does_not_mean_is_passed_on_as_it_is_written(uri: str) -> None:
    denying = catalog(DENY if uri in OPEN else PRIVATE)
    for asked in in_each_form(uri)[:2] if uri in OPEN else in_each_form(uri)[1:]:
        assert denying.resolve_uri(asked) == ("team", uri)


@pytest.mark.parametrize("own", [Filter(), Filter(allow=("*",))])
def test_without_a_deny_nothing_is_decoded(own: Filter, monkeypatch: pytest.MonkeyPatch) -> None:
    def decode(uri: str) -> None:
        raise AssertionError(uri)

    monkeypatch.setattr(module, "readings", decode)
    for uri in ("file:///PRIV/b", "file:///%2570riv/b", "file:///a%ff"):
        assert catalog(own, b'{"uri":"x:y","name":"n"}').resolve_uri(f"hub://team/{uri}") == ("team", uri)


def test_a_profile_denies_what_it_knows_by_the_name_of_the_server() -> None:
    denying = catalog(Filter(deny=("hub://team/file:///priv/*",)), of_profile=True)
    assert denying.resolve_uri("hub://team/file:///PRIV/%2562") is None
    assert denying.resolve_uri("hub://team/file:///pub/b") is not None


def test_listed_resources_are_hidden_by_what_they_wrap_and_templates_never_in_doubt() -> None:
    uris = ("hub://files/file:///priv/b", "file:///PRIV/c", "file:///pub/a", "file:///a%ff")
    templates = ("hub://files/file:///priv/{x}", "https://{host}:{port}/x", "file:///{+path}")
    denying = catalog(
        PRIVATE,
        *(b'{"uri":"%s","name":"n"}' % uri.encode() for uri in uris),
        templates=tuple(b'{"uriTemplate":"%s","name":"n"}' % text.encode() for text in templates),
    )
    assert names(denying.entries(Kind.RESOURCE)) == ["file:///pub/a"]
    assert names(denying.entries(Kind.TEMPLATE)) == [*templates[1:]]
    assert all(denying.resolve_uri(uri) is None for uri in (uris[0], uris[1], "file:///Priv/z"))


def test_what_is_hidden_by_its_tag_is_hidden_in_every_spelling() -> None:
    tagged = b'{"uri":"file:///keys/K1","name":"n","_meta":{"tags":["secret"]}}'
    denying = catalog(Filter(deny=(Selector(tag="secret"), Selector(name="file:///priv/*"))), tagged)
    for uri in ("file:///keys/K1", "file:///KEYS/k1", "hub://x/file:///keys/%254B1", "file:///PRIV/b"):
        assert denying.resolve_uri(f"hub://team/{uri}") is None, uri
    assert denying.resolve_uri("hub://team/file:///keys/K2") is not None


def test_an_escaped_star_in_a_glob_stands_for_itself() -> None:
    denying = catalog(Filter(deny=("note:%2A",)))
    assert denying.resolve_uri("note:%2a") is None and denying.resolve_uri("note:*") is None
    assert denying.resolve_uri("note:x") is not None


_DISGUISES: dict[str, Callable[[str], str]] = {
    "wrapped": lambda uri: f"hub://b/{uri}",
    "encoded and wrapped": lambda uri: f"hub://b!1/{quote(uri, safe='')}",
    "escaped": lambda uri: uri.replace("p", "%70"),
    "escaped again": lambda uri: uri.replace("%", "%25"),
    "capitals": str.upper,
    "marked": lambda uri: f"\ufeff{uri}",
    "in a query": lambda uri: f"x://h/a?u={quote(uri, safe='')}",
}


@given(st.lists(st.sampled_from(sorted(_DISGUISES)), max_size=5))
@settings(max_examples=examples(300))
def test_no_chain_of_disguises_gets_past_a_deny(chain: list[str]) -> None:
    uri = "file:///priv/b"
    for name in chain:
        uri = _DISGUISES[name](uri)
    assert catalog(PRIVATE).resolve_uri(f"hub://team/{uri}") is None


@pytest.mark.parametrize("unit", ["%25", "%2525", "a:", "hub://a/", "ü", "\u0301\u0323", "ﷺ", "x:/", ". ", ";/", "./"])
def test_a_long_uri_is_decided_in_bounded_time(unit: str) -> None:
    began = time.process_time()
    for start in ("hub://a/", "file:///", "x:", "x://a/%2525"):
        readings((start + unit * 8192)[:8192])
    assert time.process_time() - began < 4, "a guard against hanging: a tenth of it is usual"
