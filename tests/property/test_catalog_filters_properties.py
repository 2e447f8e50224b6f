from fnmatch import fnmatchcase

from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.catalog.offers.filters import Filter, Selector, Traits, _Hints

names = st.text("ab_[]-!*?\n", max_size=6)
globs = st.text("ab_[]-!*?", max_size=6)
patterns = st.lists(globs, max_size=4).map(tuple)
filters = st.builds(Filter, st.none() | patterns, patterns)

told = st.none() | st.booleans()
selectors = st.builds(Selector, st.none() | globs, st.none() | globs, told, told, told, told)
entries = st.lists(globs | selectors, max_size=4).map(tuple)
mixed = st.builds(Filter, st.none() | entries, entries)
traits = st.builds(Traits, st.frozensets(names, max_size=3), st.builds(_Hints, *[st.booleans()] * 4))


@given(mixed, globs | selectors, st.lists(names, max_size=2), traits)
def test_adding_a_deny_of_any_kind_never_admits_more(
    before: Filter, deny: str | Selector, known_as: list[str], told: Traits
) -> None:
    after = Filter(before.allow, (*before.deny, deny))
    assert before.admits(*known_as, traits=told) or not after.admits(*known_as, traits=told)


@given(filters, st.lists(names, min_size=1, max_size=2))
def test_verdicts_are_those_of_the_standard_globs(rules: Filter, known_as: list[str]) -> None:
    def any_matches(patterns: tuple[str | Selector, ...]) -> bool:
        return any(fnmatchcase(name, str(pattern)) for name in known_as for pattern in patterns)

    is_allowed = rules.allow is None or any_matches(rules.allow)
    assert rules.admits(*known_as) == (is_allowed and not any_matches(rules.deny))
