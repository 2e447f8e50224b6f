import re

from hypothesis import example, given
from hypothesis import strategies as st

from mcp_hub.catalog.resources.uris import Remembered, Templates, UriTable, assign, assign_templates

SERVERS = ("a", "b", "c d", "é!")
servers = st.sampled_from(SERVERS)
own = st.sampled_from(
    [
        *("x:1", "x:%20", "x:a b", "hub://a/x:1", "hub://b/x:1", "hub://b!1/x%3A1", "hub://c%20d/x:1"),
        *("ui://x", "ui://a/x", "ui://a!/x", "ui://a!1/ui%3A%2F%2Fx", "ui://x y", "ui://"),
        "x:%zz#a#b",
        "HUB://a/x:1",
    ]
)
uris = own | st.text(min_size=1, max_size=20)
listings = st.lists(st.tuples(servers, uris), max_size=20)
template_texts = st.sampled_from(
    ["{+any}", "ui://{x}", "ui://a!/{x}", "x:{id}", "hub://a/{+x}", "hub://{s}/x:1", "{s}://{+x}"]
)
templates = st.lists(st.tuples(servers, template_texts), max_size=4)
# RFC 3986: what a URI may consist of, each part in its place
PCHAR = r"(?:[A-Za-z0-9._~:/?@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*"
URI = re.compile(rf"[A-Za-z][A-Za-z0-9+.-]*:{PCHAR}(?:#{PCHAR})?")


def table(listed: list[tuple[str, str]], found: list[tuple[str, str]]) -> UriTable:
    return UriTable(assign(listed), Templates(found), SERVERS, SERVERS, Remembered())


@given(listings, templates)
@example([("a", "x:1"), ("b", "x:1"), ("c d", "hub://b/x:1"), ("c d", "hub://b!1/x%3A1")], [])
def test_every_listed_uri_resolves_to_exactly_its_origin(
    listed: list[tuple[str, str]], found: list[tuple[str, str]]
) -> None:
    exported = assign(listed)
    uris = table(listed, found)
    assert len(set(exported.values())) == len(set(listed))
    for origin, uri in exported.items():
        assert uris.resolve(uri) == origin
        assert uris.exported(*origin) == uri


@given(listings)
def test_an_exported_uri_is_the_original_or_a_valid_uri(listed: list[tuple[str, str]]) -> None:
    owners: dict[str, str] = {}
    for server, uri in listed:
        owners.setdefault(uri, server)
    for (server, uri), exported in assign(listed).items():
        if owners[uri] == server:
            assert exported == uri
        else:
            assert URI.fullmatch(exported)
            assert exported.startswith("ui://" if uri.startswith("ui://") else "hub://")


@given(listings, templates, servers, uris | st.text(st.characters(), max_size=9) | st.just("\ud800"))
def test_an_unlisted_uri_comes_back_to_its_server(
    listed: list[tuple[str, str]], found: list[tuple[str, str]], server: str, uri: str
) -> None:
    known = table(listed, found)
    assert known.resolve(known.exported(server, uri)) == (server, uri)


@given(listings)
def test_a_newcomer_at_the_end_changes_no_uri(listed: list[tuple[str, str]]) -> None:
    if listed and not listed[-1][1].startswith(("hub:", "ui:")):
        before = assign(listed[:-1])
        assert before.items() <= assign(listed).items()


@given(st.lists(st.tuples(servers, template_texts), max_size=10))
def test_exported_templates_are_unique_and_their_expansions_find_their_server(wanted: list[tuple[str, str]]) -> None:
    exported = assign_templates(wanted)
    assert len(set(exported.values())) == len(set(wanted))
    for (server, template), name in exported.items():
        own = template.removeprefix("ui://")  # which stays in front
        assert name.endswith(own) and name.startswith("ui://") is template.startswith("ui://")
        if name != template:
            expansion = template.replace("{", "").replace("}", "").replace("+", "")
            wrapped = name.removesuffix(own) + expansion.removeprefix("ui://")
            assert table([], wanted).resolve(wrapped) == (server, expansion)


PARTS = st.lists(st.sampled_from(["a", "b", "/", "{x}", "{+x}", "{/x}", "{?x}", "{.x}", "{#x}"]), max_size=7)
AS_REGEX = {
    "{x}": "[^/?#]*",
    "{+x}": ".*",
    "{/x}": "(?:/[^?#]*)?",
    "{?x}": r"(?:\?[^#]*)?",
    "{.x}": r"(?:\.[^/?#]*)?",
    "{#x}": "(?:#.*)?",
}


@given(PARTS, st.text("ab/?.#", max_size=8))
def test_template_matching_agrees_with_a_backtracking_regex(parts: list[str], uri: str) -> None:
    pattern = "".join(AS_REGEX.get(part, part) for part in parts)
    assert (Templates([("s", "".join(parts))]).server_for(uri) == "s") is bool(re.fullmatch(pattern, uri))
