"""Calls that were given up: how long what their server says may be for them."""

from mcp_hub.upstreams.peer.abandoned import AbandonedCalls


def heard(calls: AbandonedCalls, now: float, session: str | None = "b", *, is_question: bool = False) -> bool:
    return calls.may_mean_others(session, now, is_question=is_question)


def test_for_five_seconds_what_is_said_may_be_for_another_session() -> None:
    for is_question in (False, True):
        calls = AbandonedCalls()
        calls.add(1, "a", 10.0)
        assert heard(calls, 14.9, is_question=is_question)
        assert not heard(calls, 14.9, "a", is_question=is_question), "it is for this one in any case"
        calls = AbandonedCalls()
        calls.add(1, "a", 10.0)
        assert not heard(calls, 15.0, is_question=is_question)


def test_each_log_message_begins_the_time_anew_but_not_for_questions() -> None:
    calls = AbandonedCalls()
    calls.add(1, "a", 10.0)
    assert all(heard(calls, now) for now in (14.0, 18.0, 22.0))
    assert not heard(calls, 22.0, is_question=True)
    assert heard(calls, 26.9) and not heard(calls, 31.9)


def test_one_that_is_answered_after_all_says_no_more() -> None:
    calls = AbandonedCalls()
    calls.add(1, "a", 10.0)
    calls.answered(2)
    assert heard(calls, 11.0)
    calls.answered(1)
    assert not heard(calls, 11.0)
