"""Whatever a worker posts, in whatever order: each event is taken once, in order, and none after the end."""

import json

from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.errors import Rejected
from mcp_hub.events import Post, Progressed
from mcp_hub.upstreams.executors.posts import ExecutorLimits, Production

WINDOW = 4
BAD = b'{"type":"end","data":{}}'

Step = tuple[int, int, int, bool, str]

steps = st.tuples(
    st.sampled_from([1, 2, 2, 2, 2, 3]),  # epoch; 2 is the current one
    st.integers(-1, 2),  # how far the number is from the next one
    st.integers(0, WINDOW),  # events
    st.sampled_from([False] * 7 + [True]),  # complete
    st.sampled_from(["post"] * 8 + ["drained", "drained", "bad", "lost"]),
)


def expected(step: Step, taken: int, credit: int, ended: bool) -> str:
    """What has to come of a step, by the rules as the document puts them."""
    epoch, distance, count, _, kind = step
    seq = taken + distance
    if epoch != 2:
        return "stale_epoch"
    if seq < 1:
        return "malformed"
    if seq <= taken:
        return "duplicate"
    if ended:
        return "call_ended"
    if seq > taken + 1:
        return "gap"
    if kind == "bad":
        return "malformed"
    return "no_credit" if count > credit else "taken"


@given(st.lists(steps, max_size=40))
def test_each_event_is_taken_exactly_once_in_order_and_none_after_the_end(script: list[Step]) -> None:
    production = Production(ExecutorLimits(window=WINDOW))
    sent: list[int] = []
    received: list[float] = []
    numbered, credit, taken, endings, ended = 0, WINDOW, 0, 0, False
    for step in script:
        epoch, distance, count, complete, kind = step
        if kind == "drained":
            production.drained()
            credit = WINDOW
            continue
        if kind == "lost":
            production.end()
            ended = True
            continue
        numbers = range(numbered, numbered + count)
        numbered += count
        events = [json.dumps({"type": "progress", "data": {"progress": n}}).encode() for n in numbers]
        if kind == "bad":
            events = [*events[: WINDOW - 1], BAD]
        post = Post(epoch, taken + distance, events, complete=complete)
        want = expected(step, taken, credit, ended)
        try:
            outcome = production.receive(post, 2)
        except Rejected as refusal:
            got = refusal.code
            told = {"gap": ("expected", taken + 1), "stale_epoch": ("epoch", 2), "no_credit": ("credit", credit)}
            if got in told:
                name, value = told[got]
                assert refusal.members == {name: value}
        else:
            got = "duplicate" if outcome is None else "taken"
            if outcome is not None:
                received += [event.progress for event in outcome.events if isinstance(event, Progressed)]
                assert (outcome.ending is not None) == complete
        assert got == want
        if want == "taken":
            sent += numbers
            taken, credit, ended, endings = taken + 1, credit - count, complete, endings + complete
        assert (production.taken, production.credit, production.ended) == (taken, credit, ended)
    assert received == sent and endings <= 1


@given(st.lists(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), max_size=4), max_size=8))
def test_however_text_is_cut_into_deltas_and_posts_the_result_is_the_whole(batches: list[list[str]]) -> None:
    production = Production(ExecutorLimits())
    for place, batch in enumerate(batches, 1):
        content = [{"type": "delta", "data": {"content": [{"type": "text", "text": piece}]}} for piece in batch]
        production.receive(Post(1, place, [json.dumps(event).encode() for event in content]), 1)
    done = production.receive(Post(1, len(batches) + 1, complete=True), 1)
    assert done is not None and done.ending is not None
    blocks = json.loads(bytes(done.ending.result))["content"]  # type: ignore[union-attr]  # it is no failure
    assert "".join(block["text"] for block in blocks) == "".join(piece for batch in batches for piece in batch)
    assert len(blocks) <= 1
