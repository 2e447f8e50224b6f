import pytest

from mcp_hub.catalog.names import RESERVED, Wanted, assign


def named(*wanted: Wanted, max_length: int = 48) -> list[str]:
    names = assign(wanted, max_length=max_length)
    return [names[one.server, one.name] for one in wanted]


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        (Wanted("s", "add", "git"), "git_add"),
        (Wanted("s", "git_add", "git"), "git_add"),
        (Wanted("s", "GIT-add", "git"), "GIT-add"),
        (Wanted("s", "Git", "git"), "Git"),
        (Wanted("s", "gitter", "git"), "git_gitter"),
        (Wanted("s", "git_add", "git", always=True), "git_git_add"),
        (Wanted("s", "my_srv_x", "my.srv"), "my_srv_x"),
        (Wanted("s", "add"), "add"),
        (Wanted("s", "add", ""), "add"),
        (Wanted("s", "a.b/c d"), "a_b_c_d"),
        (Wanted("s", "2fa", None), "_2fa"),
        (Wanted("s", "-x", None), "_-x"),
        (Wanted("s", "天气", "maps"), "maps___"),
        (Wanted("s", "add", "git", rename="sum"), "sum"),
        (Wanted("s", "add", "git", rename="my sum"), "my_sum"),
        (Wanted("s", "find_tools"), "s_find_tools"),
        (Wanted("s", "wait", "hub"), "s_hub_wait"),
        (Wanted("s", "add", "git", rename="run_tool"), "s_run_tool"),
    ],
)
def test_a_lone_name_is_as_plain_as_the_rules_allow(wanted: Wanted, name: str) -> None:
    assert named(wanted) == [name]


def test_names_that_join_alike_all_get_a_suffix() -> None:
    first, second = named(Wanted("a", "hub_x", "git", always=True), Wanted("b", "x", "git_hub"))
    assert first != second
    assert first.startswith("git_hub_x_") and second.startswith("git_hub_x_")


def test_names_that_sanitise_alike_all_get_a_suffix() -> None:
    first, second = named(Wanted("s", "a.b"), Wanted("s", "a/b"))
    assert first != second and first.startswith("a_b_") and second.startswith("a_b_")


def test_a_cut_name_ends_in_its_hash_and_fits_exactly() -> None:
    first, second = named(Wanted("s", "x" * 60 + "1"), Wanted("s", "x" * 60 + "2"))
    assert len(first) == len(second) == 48
    assert first != second and first[:41] == "x" * 41
    assert named(Wanted("s", "x" * 48)) == ["x" * 48]


def test_hashes_never_change_between_releases() -> None:
    assert named(Wanted("a", "x"), Wanted("b", "x")) == ["x_rodlz3", "x_4fyh3x"]


def test_a_rename_beats_a_generated_name() -> None:
    renamed, generated = named(Wanted("a", "y", rename="b_x"), Wanted("b", "x", "b"))
    assert renamed == "b_x"
    assert generated.startswith("b_x_")


def test_of_one_servers_own_the_tool_that_is_called_so_keeps_the_name() -> None:
    plain, called = Wanted("wiki", "get", "wiki"), Wanted("wiki", "wiki_get", "wiki")
    generated, kept = named(plain, called)
    assert kept == "wiki_get" and generated.startswith("wiki_get_")
    assert named(called, plain) == [kept, generated]
    stranger = Wanted("other", "wiki_get")
    assert "wiki_get" not in named(plain, called, stranger), "between servers it is nobody's"
    suffixed = named(Wanted("a", "x"), Wanted("b", "x"))[0]
    thief = Wanted("c", suffixed), Wanted("c", suffixed.removeprefix("x_"), "x")
    assert suffixed not in named(Wanted("a", "x"), Wanted("b", "x"), *thief)


def test_one_that_yields_gets_what_the_others_leave_and_changes_nobodys_name() -> None:
    late = Wanted("virtual", "add", yields=True)
    one, two, three = named(Wanted("s", "add"), Wanted("t", "sum"), late)
    assert (one, two) == ("add", "sum") and three.startswith("add_")
    assert named(late) == ["add"]
    rivals = Wanted("s", "add"), Wanted("t", "add")
    assert named(*rivals, late)[:2] == named(*rivals) and len(set(named(*rivals, late))) == 3
    two_late = late, Wanted("virtual2", "add", yields=True)
    assert "add" not in named(*two_late)


def test_prompts_may_use_the_names_that_are_reserved_for_tools() -> None:
    assert assign([Wanted("s", "run_tool")], reserved=frozenset()) == {("s", "run_tool"): "run_tool"}
    assert "run_tool" in RESERVED


def test_a_length_without_room_for_a_hash_is_refused() -> None:
    with pytest.raises(ValueError, match="16 is the least"):
        assign([], max_length=15)
