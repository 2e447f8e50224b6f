import pytest

from mcp_hub.catalog.resources.skills import SkillRoots

SERVERS = ("a", "b", "c")


def roots(*skills: tuple[str, str], resources: tuple[tuple[str, str], ...] = ()) -> SkillRoots:
    return SkillRoots([(server, f"{root}/SKILL.md") for server, root in skills], resources, SERVERS)


def test_a_skill_stays_where_it_is_while_nobody_else_has_something_there() -> None:
    made = roots(("a", "skill://pdf"), ("b", "skill://pdf2"), ("b", "skill://acme/pdf"))
    for server, uri in (("a", "skill://pdf/x"), ("b", "skill://pdf2"), ("b", "skill://acme/pdf/SKILL.md")):
        assert made.exported(server, uri) == uri
        assert made.resolve(uri) == (server, uri)
    assert made.exported("b", "skill://pdf/x") is None and made.exported("b", "skill://acme") is None
    assert made.resolve("skill://acme") is None and made.resolve("skill://pdfs/x") is None


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("skill://pdf", "skill://pdf"),
        ("skill://acme/pdf", "skill://acme"),
        ("skill://acme", "skill://acme/pdf"),
        ("github://acme/pdf", "github://acme/pdf"),
    ],
)
def test_the_later_servers_skill_goes_under_its_name_with_all_that_is_in_it(first: str, second: str) -> None:
    made = roots(("a", first), ("b", second))
    scheme, path = second.split("://")
    moved = f"skill://b/{path}" if scheme == "skill" else f"hub://b/{second}"
    assert made.exported("a", f"{first}/x") == f"{first}/x"
    assert made.exported("b", f"{second}/deep/x") == f"{moved}/deep/x"
    assert made.resolve(f"{moved}/deep/x") == ("b", f"{second}/deep/x")
    assert made.resolve(moved) == ("b", second)


def test_a_skill_inside_of_another_of_its_server_moves_with_that() -> None:
    made = roots(("a", "skill://pdf"), ("b", "skill://pdf/scan"), ("b", "skill://pdf"))
    assert made.exported("b", "skill://pdf/scan/SKILL.md") == "skill://b/pdf/scan/SKILL.md"


def test_a_name_that_somebody_has_already_is_not_given_away() -> None:
    made = roots(("a", "skill://pdf"), ("b", "skill://pdf"), ("c", "skill://b/pdf"))
    assert made.exported("c", "skill://b/pdf/x") == "skill://b/pdf/x"
    assert made.exported("b", "skill://pdf/x") == "skill://b!1/pdf/x"


def test_plain_resources_keep_their_place_against_later_skills_and_can_be_skills() -> None:
    listed = (("a", "skill://pdf/readme"), ("a", "skill://old/SKILL.md"), ("b", "skill://old/SKILL.md"))
    made = roots(("b", "skill://pdf"), resources=listed)
    assert made.exported("b", "skill://pdf/readme") == "skill://b/pdf/readme"
    # servers of before the extension list the files alone
    assert made.exported("a", "skill://old/x") == "skill://old/x"
    assert made.exported("b", "skill://old/x") == "skill://b/old/x"


def test_a_uri_that_is_too_long_is_in_no_skill() -> None:
    made, long = roots(("a", "skill://pdf")), "skill://pdf/" + "x/" * 5000
    assert made.exported("a", long) is None and made.resolve(long) is None
