import re
import string

from hypothesis import example, given
from hypothesis import strategies as st

from mcp_hub.catalog.views.names import RESERVED, Wanted, assign

# few letters, so that names meet
texts = st.text("ab_-.é", min_size=1, max_size=4) | st.sampled_from(sorted(RESERVED)) | st.text(min_size=1, max_size=80)
wishes = st.builds(
    Wanted,
    server=st.sampled_from("abc"),
    name=texts,
    prefix=st.none() | st.sampled_from(["a", "a_b", "hub", "find", "x" * 50]),
    always=st.booleans(),
    rename=st.none() | texts,
)
wish_lists = st.lists(wishes, max_size=30, unique_by=lambda one: (one.server, one.name))


@given(wish_lists, st.integers(16, 64))
def test_names_are_unique_legal_and_short_for_every_origin(wanted: list[Wanted], max_length: int) -> None:
    names = assign(wanted, max_length=max_length)
    assert set(names) == {(one.server, one.name) for one in wanted}
    assert len(set(names.values())) == len(wanted)
    for name in names.values():
        assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", name)
        assert len(name) <= max_length
        assert name not in RESERVED


@given(wish_lists, st.randoms(use_true_random=False))
def test_names_do_not_depend_on_order(wanted: list[Wanted], random: object) -> None:
    shuffled = list(wanted)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # random.Random
    assert assign(shuffled) == assign(wanted)


def claims(one: Wanted) -> set[str]:
    """The names that `one` may fight over: what it gets alone, and its rename."""
    return {*assign([one]).values(), one.rename or ""}


@given(wish_lists.filter(bool))
@example([Wanted("a", "a_b"), Wanted("b", "b", "a")])
def test_only_those_that_want_the_same_name_change_when_another_appears(wanted: list[Wanted]) -> None:
    *before, newcomer = wanted
    old, new = assign(before), assign(wanted)
    for one in before:
        origin = (one.server, one.name)
        if old[origin] != new[origin]:
            assert old[origin] in claims(newcomer)


@given(wish_lists)
@example([Wanted("a", "x", "a"), Wanted("a", "a_x", "a")])
@example([Wanted("a", "x", "a"), Wanted("a", "a_x", "a"), Wanted("b", "a_x")])
def test_a_name_that_is_wanted_twice_goes_to_nobody_but_a_lone_rename_or_whom_its_server_calls_so(
    wanted: list[Wanted],
) -> None:
    names = assign(wanted)
    alone = [(one, name) for one in wanted for name in assign([one]).values()]
    for one, name in alone:
        rivals = [other for other, wished in alone if wished == name and other is not one]
        if rivals and names[one.server, one.name] == name:
            if one.rename == name:
                assert all(other.rename != name for other in rivals)
            else:
                assert one.name == name and {other.server for other in rivals} == {one.server}


@given(st.text(string.ascii_lowercase, min_size=1, max_size=20))
def test_a_legal_free_rename_is_used_as_it_is(rename: str) -> None:
    names = assign([Wanted("a", "x", "a", rename=rename), Wanted("b", rename), Wanted("c", "other", "c")])
    assert names["a", "x"] == rename
    assert names["b", rename] != rename
