import pytest

from mcp_hub.catalog.resources.uris import Remembered, Templates, UriTable, assign, assign_templates


def table(
    *listed: tuple[str, str], templates: tuple[tuple[str, str], ...] = (), readers: tuple[str, ...] = ("a", "b")
) -> UriTable:
    return UriTable(assign(listed), Templates(templates), ("a", "b", "c"), readers, Remembered())


def test_a_unique_uri_stays_and_the_first_server_keeps_a_shared_one() -> None:
    wanted = [("a", "file:///x"), ("b", "file:///x"), ("b", "file:///y")]
    assert list(assign(wanted).values()) == ["file:///x", "hub://b/file:///x", "file:///y"]


def test_a_wrapped_uri_never_takes_an_upstreams_own_hub_uri() -> None:
    listed = (("a", "x:1"), ("b", "x:1"), ("c", "hub://b/x:1"), ("c", "hub://b!1/x%3A1"))
    exported = assign(listed)
    assert exported["b", "x:1"] == "hub://b!2/x%3A1"
    assert {table(*listed).resolve(uri) for uri in exported.values()} == set(listed)


def test_the_address_of_an_app_keeps_its_scheme() -> None:
    listed = (("a", "ui://x/y"), ("b", "ui://x/y"), ("c", "ui://x/y"), ("c", "ui://b/x/y"), ("b", "ui://a b"))
    exported = assign(listed)
    assert exported["b", "ui://x/y"] == "ui://b!/x/y" and exported["c", "ui://x/y"] == "ui://c/x/y"
    assert exported["b", "ui://a b"] == "ui://a b"
    assert assign([("a", "ui://a b"), ("b", "ui://a b")])["b", "ui://a b"] == "ui://b!1/ui%3A%2F%2Fa%20b"
    assert {table(*listed).resolve(uri) for uri in exported.values()} == set(listed)
    assert assign_templates([("a", "ui://{x}"), ("b", "ui://{x}")])["b", "ui://{x}"] == "ui://b!/{x}"
    assert table().resolve("ui://b!/7") == ("b", "ui://7") and table().resolve("ui://nobody!/7") is None


def test_an_unlisted_address_of_an_app_comes_back_whatever_server_it_seems_to_name() -> None:
    uris = table(("a", "ui://x"), ("b", "ui://x"))
    assert uris.exported("b", "ui://b/x") == "ui://b!/b/x", "which is what its listed one is exported as"
    assert uris.exported("c", "ui://b/y") == "ui://b/y" and uris.resolve("ui://b/y") == ("c", "ui://b/y")
    assert uris.exported("b", "ui://b/y") == "ui://b!/b/y" and uris.resolve("ui://b!/b/y") == ("b", "ui://b/y")
    assert uris.exported("c", "ui://b!/z") == "ui://c!/b!/z" and uris.resolve("ui://c!/b!/z") == ("c", "ui://b!/z")


def test_a_uri_that_no_server_mentioned_is_wrapped_and_stays_nobodys() -> None:
    uris = table(("a", "x:1"))
    assert uris.exported("b", "x:9", remembers=False) == "hub://b/x:9" and uris.resolve("x:9") is None
    assert uris.exported("a", "x:1", remembers=False) == "x:1"


def test_templates_keep_their_braces() -> None:
    wanted = [("a", "db://{id}{?q*}"), ("b", "db://{id}{?q*}"), ("b", "hub://a/{x}"), ("b", "HUB://{x}")]
    expected = ["db://{id}{?q*}", "hub://b/db://{id}{?q*}", "hub://b/hub://a/{x}", "hub://b/HUB://{x}"]
    assert list(assign_templates(wanted).values()) == expected


def test_an_expanded_wrapped_template_goes_to_its_server() -> None:
    assert table().resolve("hub://b/db://1?q=~x") == ("b", "db://1?q=~x")
    assert table().resolve("hub://b/db://a%20b") == ("b", "db://a%20b")
    assert table().resolve("hub://b/hub://a/x") == ("b", "hub://a/x")
    assert table().resolve("hub://nobody/db://1") is None
    alone = UriTable({}, Templates([("a", "{+any}")]), ["a"], ["a"], Remembered())
    assert alone.resolve("x:1") == ("a", "x:1")
    for uri in ("hub://nobody/x:1", "HUB://nobody/x:1", "hub://"):
        assert alone.resolve(uri) is None, uri


def test_an_unknown_uri_goes_to_the_only_server_with_resources_or_to_nobody() -> None:
    assert table(readers=("c",)).resolve("x:1") == ("c", "x:1")
    assert table(readers=("a", "c")).resolve("x:1") is None
    assert table(readers=()).resolve("x:1") is None


def test_an_unlisted_uri_is_exported_so_that_it_comes_back() -> None:
    uris = table(("a", "x:1"), templates=(("a", "db://{id}"),))
    assert uris.exported("a", "x:1") == "x:1"
    assert uris.exported("a", "db://7") == "db://7"
    assert uris.exported("b", "db://7") == "hub://b/db://7"
    assert uris.exported("b", "hub://a/x:1") == "hub://b/hub://a/x:1"
    assert uris.exported("b", "HUB://a/x:1") == "hub://b/HUB://a/x:1"
    assert uris.exported("nobody", "x:9") == "x:9" and uris.resolve("x:9") is None
    assert uris.exported("b", "x:9") == "x:9" and uris.resolve("x:9") == ("b", "x:9")


def test_an_unlisted_uri_belongs_to_who_mentioned_it_first() -> None:
    uris = table()
    assert uris.resolve("x:9") is None
    assert uris.exported("b", "x:9") == "x:9"
    assert uris.resolve("x:9") == ("b", "x:9")
    assert uris.exported("a", "x:9") == "hub://a/x:9" and uris.resolve("hub://a/x:9") == ("a", "x:9")
    assert uris.exported("b", "x:9") == "x:9"


def test_what_is_listed_or_fits_anothers_template_is_not_taken_by_a_mention() -> None:
    uris = table(("a", "x:1"), templates=(("a", "db://{id}"),))
    assert uris.exported("b", "x:1") == "hub://b/x:1" and uris.resolve("x:1") == ("a", "x:1")
    assert uris.exported("b", "db://7") == "hub://b/db://7" and uris.resolve("db://7") == ("a", "db://7")


def test_a_mention_goes_before_a_template_that_came_later_and_behind_the_list() -> None:
    seen = Remembered()
    before = UriTable({}, Templates([]), ("a", "b"), ("a", "b"), seen)
    assert before.exported("b", "db://7") == "db://7"
    after = UriTable({}, Templates([("a", "db://{id}")]), ("a", "b"), ("a", "b"), seen)
    assert after.resolve("db://7") == ("b", "db://7") and after.exported("b", "db://7") == "db://7"
    assert after.exported("a", "db://7") == "hub://a/db://7"
    listed = UriTable(assign([("a", "db://7")]), Templates([]), ("a", "b"), ("a", "b"), seen)
    assert listed.resolve("db://7") == ("a", "db://7") and listed.exported("b", "db://7") == "hub://b/db://7"


def test_a_uri_too_long_to_remember_is_wrapped_and_one_too_long_for_a_uri_stays() -> None:
    uris = table(templates=(("a", "db://{id}"),))
    for long in ("x:" + "y" * 3000, "x:" + " é" * 4000):
        wrapped = uris.exported("b", long)
        assert wrapped.startswith("hub://b") and uris.resolve(wrapped) == ("b", long)
    assert uris.exported("a", "db://" + "7" * 3000) == "db://" + "7" * 3000
    assert uris.exported("b", "data:," + "x" * 9000) == "data:," + "x" * 9000


@pytest.mark.parametrize(
    ("template", "uri", "matches"),
    [
        ("a:b", "a:b", True),
        ("a:b", "a:bb", False),
        ("a:{x}", "a:", True),
        ("a:{x}", "a:b c", True),
        ("a:{x}", "a:b/c", False),
        ("a:{x,y}", "a:1,2", True),
        ("a:{x}/{y}", "a:1/2", True),
        ("a:{x}/{y}", "a:1/2/3", False),
        ("ab{x}bc", "abc", False),
        ("a:{x}-b-{y}", "a:1-b-b-b-2", True),
        ("a:{+x}", "a:b/c?d#e", True),
        ("a:{+x}/end", "a:b/end/end", True),
        ("a:{+x}/end", "a:b/end/en", False),
        ("a:{#x}", "a:#b/c", True),
        ("a:{#x}", "a:b", False),
        ("a:v{.x}", "a:v.json", True),
        ("a:v{.x}", "a:vjson", False),
        ("a:{/x*}", "a:/b/c", True),
        ("a:{/x*}", "a:b", False),
        ("a:{/x}{?q}", "a:/b?q=1", True),
        ("a:{;x}", "a:;x=1", True),
        ("a:b{?x,y}", "a:b", True),
        ("a:b{?x,y}", "a:b?x=1&y=/2", True),
        ("a:b{?x,y}", "a:b&x=1", False),
        ("a:b?c=1{&x}", "a:b?c=1&x=1", True),
        ("a:{x", "a:1", False),
        ("a:{}", "a:1", False),
        ("a:{=x}", "a:1", False),
        ("天:{x}", "天:气", True),
    ],
)
def test_template_matching(template: str, uri: str, matches: bool) -> None:
    assert (Templates([("s", template)]).server_for(uri) == "s") is matches


def test_hostile_templates_cost_little() -> None:
    hostile = Templates([("s", "{+x}a" * 200 + "b"), ("t", "".join(f"{{x}}{'a' * n}" for n in range(40)) + "b")])
    assert hostile.server_for("a" * 8191 + "b") == "s"
    assert hostile.server_for("a" * 8192) is None
    assert Templates([("s", "{+x}")]).server_for("a" * 8193) is None
