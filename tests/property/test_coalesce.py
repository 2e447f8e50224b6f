import json

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.calls.coalesce import merge, suppressed
from mcp_hub.events import Progressed

rests = st.none() | st.just({"message": msgspec.Raw(b'"m"')})
progress = st.builds(Progressed, st.integers(), st.none() | st.integers(), rests, st.integers(0, 9))


@given(progress, progress)
def test_the_newest_progress_stands_for_both_and_says_how_many(old: Progressed, new: Progressed) -> None:
    merged = merge(old, new)
    assert (merged.progress, merged.total, merged.rest) == (new.progress, new.total, new.rest)
    assert merged.skipped + 1 == (old.skipped + 1) + (new.skipped + 1)


@given(progress, progress, progress)
def test_it_does_not_matter_which_two_of_three_are_merged_first(a: Progressed, b: Progressed, c: Progressed) -> None:
    assert merge(merge(a, b), c) == merge(a, merge(b, c))


@given(st.integers(1, 10**9))
def test_the_place_of_suppressed_messages_says_how_many_there_were(count: int) -> None:
    notice = suppressed(count)
    assert notice.level == "warning"
    params = json.loads(bytes(notice.params))
    assert params["level"] == "warning" and params["data"].startswith(f"{count} log messages suppressed")
