"""A `deny` on resources holds for whatever is nested in a URI, and for however often it is encoded."""

import time
from collections.abc import Callable
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_hub.catalog.offers.filters import Filter, Selector
from mcp_hub.catalog.offers.rules import ServerRules, ViewRules
from mcp_hub.catalog.resources import readings as module
from mcp_hub.catalog.resources.readings import readings
from mcp_hub.catalog.views.entries import Entry
from mcp_hub.catalog.views.view import CatalogView, build
from mcp_hub.types import Era, Kind, Snapshot
from tests.examples import examples

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
OPEN = [
    *("ui://b!/pub/x", "ui://b/priv/x"),
    *("file:///pub/b", "hub://files/file:///pub/b", "file:///private", "vault:mainly", "file:///pub/100%", "memos"),
    *("file:///pub/%E2%82%AC%20x", "note:at 10:30 with x:y", "hub://b!1/note%3Aa%0Ab", "x://h/?u=file:///pub/b"),
]


def view(own: Filter, *listed: bytes, templates: tuple[bytes, ...] = (), of_profile: bool = False) -> CatalogView:
    lists = {Kind.RESOURCE: listed, Kind.TEMPLATE: templates}
    shown = Snapshot("team", Era.HANDSHAKE, lists, capabilities={"resources": {}})
    if of_profile:
        return build([shown], ViewRules({"team": ServerRules()}, resources=own))
    return build([shown], ViewRules({"team": ServerRules(resources=own)}))


def names(found: tuple[Entry, ...]) -> list[str]:
    return [entry.key for entry in found]


@pytest.mark.parametrize("of_profile", [False, True])
@pytest.mark.parametrize("uri", [*NESTED, *SPELLINGS])
def test_what_is_denied_is_denied_nested_and_decoded(uri: str, of_profile: bool) -> None:
    denying = view(PRIVATE, of_profile=of_profile)
    for asked in (uri, f"hub://team/{uri}", f"hub://team!1/{quote(uri, safe='')}"):
        assert denying.resolve_uri(asked) is None, asked


@pytest.mark.parametrize("uri", OPEN)
def test_what_a_deny_does_not_mean_is_passed_on_as_it_is_written(uri: str) -> None:
    denying = view(PRIVATE)
    for asked in (f"hub://team/{uri}", f"hub://team!1/{quote(uri, safe='')}"):
        assert denying.resolve_uri(asked) == ("team", uri)


@pytest.mark.parametrize("own", [Filter(), Filter(allow=("*",))])
def test_without_a_deny_nothing_is_decoded(own: Filter, monkeypatch: pytest.MonkeyPatch) -> None:
    def decode(uri: str) -> None:
        raise AssertionError(uri)

    monkeypatch.setattr(module, "readings", decode)
    for uri in ("file:///PRIV/b", "file:///%2570riv/b", "file:///a%ff"):
        assert view(own, b'{"uri":"x:y","name":"n"}').resolve_uri(f"hub://team/{uri}") == ("team", uri)


def test_a_profile_denies_what_it_knows_by_the_name_of_the_server() -> None:
    denying = view(Filter(deny=("hub://team/file:///priv/*",)), of_profile=True)
    assert denying.resolve_uri("hub://team/file:///PRIV/%2562") is None
    assert denying.resolve_uri("hub://team/file:///pub/b") is not None


def test_listed_resources_are_hidden_by_what_they_wrap_and_templates_never_in_doubt() -> None:
    uris = ("hub://files/file:///priv/b", "file:///PRIV/c", "file:///pub/a", "file:///a%ff")
    templates = ("hub://files/file:///priv/{x}", "https://{host}:{port}/x", "file:///{+path}")
    denying = view(
        PRIVATE,
        *(b'{"uri":"%s","name":"n"}' % uri.encode() for uri in uris),
        templates=tuple(b'{"uriTemplate":"%s","name":"n"}' % text.encode() for text in templates),
    )
    assert names(denying.entries(Kind.RESOURCE)) == ["file:///pub/a"]
    assert names(denying.entries(Kind.TEMPLATE)) == [*templates[1:]]
    assert all(denying.resolve_uri(uri) is None for uri in (uris[0], uris[1], "file:///Priv/z"))


def test_what_is_hidden_by_its_tag_is_hidden_in_every_spelling() -> None:
    tagged = b'{"uri":"file:///keys/K1","name":"n","_meta":{"tags":["secret"]}}'
    denying = view(Filter(deny=(Selector(tag="secret"), Selector(name="file:///priv/*"))), tagged)
    for uri in ("file:///keys/K1", "file:///KEYS/k1", "hub://x/file:///keys/%254B1", "file:///PRIV/b"):
        assert denying.resolve_uri(f"hub://team/{uri}") is None, uri
    assert denying.resolve_uri("hub://team/file:///keys/K2") is not None


def test_an_escaped_star_in_a_glob_stands_for_itself() -> None:
    denying = view(Filter(deny=("note:%2A",)))
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
    assert view(PRIVATE).resolve_uri(f"hub://team/{uri}") is None


@pytest.mark.parametrize("unit", ["%25", "%2525", "a:", "hub://a/", "ü", "\u0301\u0323", "ﷺ", "x:/", ". ", ";/", "./"])
def test_a_long_uri_is_decided_in_bounded_time(unit: str) -> None:
    began = time.process_time()
    for start in ("hub://a/", "file:///", "x:", "x://a/%2525"):
        readings((start + unit * 8192)[:8192])
    assert time.process_time() - began < 4, "a guard against hanging: a tenth of it is usual"
