import pytest

from mcp_hub.errors import Busy
from mcp_hub.sessions.session import LOCAL, Caller, Session, Sessions
from mcp_hub.types import Era

ALICE, BOB = Caller("alice"), Caller("bob")


def session(id_: str, caller: Caller = ALICE) -> Session:
    return Session(id_, caller, Era.HANDSHAKE, "2025-11-25")


def kept(most: int, *ids: str) -> Sessions:
    sessions = Sessions(most)
    for id_ in ids:
        sessions.add(session(id_))
    return sessions


def test_a_session_is_found_by_its_caller_until_it_is_removed() -> None:
    sessions, own = Sessions(10), session("a")
    sessions.add(own)
    assert sessions.find("a", ALICE) is own
    sessions.remove(own)
    sessions.remove(own)
    assert sessions.find("a", ALICE) is None and len(sessions) == 0


@pytest.mark.parametrize("stranger", [BOB, LOCAL, Caller("alice", "small")])
def test_a_foreign_session_is_as_unknown_as_none(stranger: Caller) -> None:
    sessions = kept(10, "a")
    assert sessions.find("a", stranger) is sessions.find("b", stranger) is None


def test_the_one_unused_for_longest_makes_room() -> None:
    sessions = kept(3, "a", "b", "c")
    assert sessions.find("a", ALICE) and not sessions.find("b", BOB), "who may not use it does not keep it alive"
    sessions.add(session("d"))
    assert [id_ for id_ in "abcd" if sessions.find(id_, ALICE)] == ["a", "c", "d"]
    assert len(sessions) == 3


def test_sessions_can_be_switched_off() -> None:
    with pytest.raises(Busy, match="hub.http.max_sessions"):
        kept(0, "a")


def of(sessions: Sessions, caller: Caller, ids: str) -> str:
    """Those that are still there; looking does not count as use."""
    return "".join(id_ for id_ in ids if id_ in sessions._by_id and sessions._by_id[id_].session.caller == caller)


def test_one_principal_has_so_many_and_gives_up_its_own() -> None:
    sessions = Sessions(10, 3)
    sessions.add(session("x", BOB))
    for id_ in "abcd":
        gone = sessions.add(session(id_))
    assert [one.id for one in gone] == ["a"]
    assert (of(sessions, ALICE, "abcd"), of(sessions, BOB, "x")) == ("bcd", "x")


def test_who_has_most_makes_room_for_others() -> None:
    sessions = Sessions(4)
    for id_ in "abcd":
        sessions.add(session(id_))
    for id_ in "xyz":
        sessions.add(session(id_, BOB))
    assert (of(sessions, ALICE, "abcd"), of(sessions, BOB, "xyz")) == ("cd", "yz")
    assert len(sessions) == 4


def test_many_that_were_never_used_go_before_one_that_is() -> None:
    """A client that only connects drives out itself."""
    sessions = Sessions(1000, 8)
    sessions.add(session("a"))
    assert sessions.find("a", ALICE)
    for number in range(100):
        sessions.add(session(f"storm{number}"))
    assert sessions.find("a", ALICE) and sessions.find("storm99", ALICE)
    assert len(sessions) == 8


def test_a_single_new_one_is_not_driven_out_by_the_next() -> None:
    sessions = kept(3, "a", "b")
    assert sessions.find("a", ALICE) and sessions.find("b", ALICE)
    sessions.add(session("c"))
    sessions.add(session("d"))
    assert of(sessions, ALICE, "abcd") == "bcd"


def test_a_session_that_is_over_stays_so() -> None:
    ended = session("a")
    ended.be("connected")
    ended.end()
    ended.be("away")
    assert ended.is_over


def test_an_unknown_log_level_changes_nothing() -> None:
    logs = session("a")
    assert logs.set_log_level("debug") and not logs.set_log_level("loud")
    assert logs.log_level == "debug"
