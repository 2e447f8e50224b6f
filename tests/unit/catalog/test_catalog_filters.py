import pytest

from mcp_hub.catalog.filters import EVERYTHING, Filter


def test_no_patterns_admit_everything() -> None:
    assert EVERYTHING.admits("anything")
    assert EVERYTHING.admits()


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
