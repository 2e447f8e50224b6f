import pytest

from mcp_hub.catalog.offers.filters import Filter, Selector, Traits, _Hints
from mcp_hub.globs import first_match


def test_empty_allow_admits_nothing() -> None:
    assert not Filter(allow=()).admits("anything")
    assert not Filter(allow=(), deny=("x",)).admits("anything", "other")
    assert Filter(deny=("x",)).admits("anything")


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("get_*", "get_issue", True),
        ("get_*", "forget_issue", False),
        ("GET_*", "get_issue", False),
        ("get_?", "get_x", True),
        ("[ab]*", "beta", True),
        ("[!ab]*", "beta", False),
        ("file:///*", "file:///a/b", True),
        ("a.c", "abc", False),
        ("[", "[", True),
    ],
)
def test_globs(pattern: str, name: str, matches: bool) -> None:
    assert Filter(allow=(pattern,)).admits(name) is matches
    assert Filter(deny=(pattern,)).admits(name) is not matches


def test_either_name_may_match_and_deny_wins() -> None:
    rules = Filter(allow=("git_*",), deny=("push",))
    assert rules.admits("pull", "git_pull")
    assert not rules.admits("push", "git_push")
    assert not rules.admits("pull", "pull")


def test_many_stars_do_not_make_matching_explode() -> None:
    assert not Filter(allow=("*a" * 100 + "b",)).admits("a" * 1024)


READER = Traits(frozenset({"read", "toolset:jira"}), _Hints(read_only=True, destructive=False))
UNTAGGED = Traits()


@pytest.mark.parametrize(
    ("selector", "selects"),
    [
        (Selector(tag="read"), True),
        (Selector(tag="toolset:*"), True),
        (Selector(tag="Read"), False),
        (Selector(tag="rea"), False),
        (Selector(read_only=True), True),
        (Selector(read_only=False), False),
        (Selector(destructive=False), True),
        (Selector(open_world=True), True),
        (Selector(open_world=False), False),
        (Selector(idempotent=True), False),
        (Selector(name="get_*"), True),
        (Selector(name="git_get_x", tag="read", read_only=True), True),  # the other name, and all that it asks for
        (Selector(name="get_*", tag="write"), False),
        (Selector(name="put_*", tag="read"), False),
        (Selector(tag="read", read_only=False), False),
        (Selector(), False),
    ],
)
def test_all_parts_of_a_selector_have_to_hold(selector: Selector, selects: bool) -> None:
    assert Filter(allow=(selector,)).admits("get_x", "git_get_x", traits=READER) is selects
    assert Filter(deny=(selector,)).denies("get_x", "git_get_x", traits=READER) is selects


def test_what_says_nothing_of_itself_has_no_tags_and_the_worst_hints() -> None:
    assert not Filter(allow=(Selector(tag="*"),)).admits("x", traits=UNTAGGED)
    assert not Filter(allow=(Selector(read_only=True),)).admits("x")
    assert not Filter(deny=(Selector(destructive=True),)).admits("x")


def test_one_entry_is_enough_to_allow_and_a_deny_wins_over_all_of_them() -> None:
    rules = Filter(allow=("put_x", Selector(tag="read")), deny=(Selector(read_only=True, tag="toolset:*"),))
    assert rules.admits("put_x")
    assert rules.admits("get_x", traits=Traits(frozenset({"read"})))
    assert not rules.admits("put_x", traits=READER)


@pytest.mark.parametrize(
    ("patterns", "found"), [(("l*", "log"), "log"), (("x*", "l*", "lo?"), "l*"), (("x*", "LOG"), None), ((), None)]
)
def test_exact_name_goes_before_the_first_glob(patterns: tuple[str, ...], found: str | None) -> None:
    assert first_match("log", patterns) == found
