"""The clients that came, as people who watch a hub see them."""

from mcp_hub.sessions.clients import ClientsSeen
from mcp_hub.sessions.session import LOCAL, Session
from mcp_hub.types import ClientKind, Era

KIND = ClientKind()


def session(id_: str, name: object = "editor", era: Era = Era.HANDSHAKE) -> Session:
    return Session(id_, LOCAL, era, "2025-11-25", client_info={"name": name})


def test_a_session_is_a_client_and_connected_until_it_ends() -> None:
    seen = ClientsSeen(lambda session: KIND, iter(range(100)).__next__, lambda: 0.0)
    one, other = session("1"), session("2")
    assert seen(one) is KIND and seen(other) is KIND and seen(one) is KIND
    assert [client.first for client in seen.newest()] == [0, 1]
    one.end()
    assert [client.connected for client in seen.newest()] == [False, True]
    del other
    assert [client.connected for client in seen.newest()] == [False, False]


def test_requests_of_one_modern_client_are_one_client_that_counts_its_calls() -> None:
    seen = ClientsSeen(lambda session: KIND, iter(range(100)).__next__, lambda: 0.0)
    sessions = [session(f"http#{number}", era=Era.MODERN) for number in range(3)]
    for each in sessions:
        seen(each)
    (client,) = seen.newest()
    assert all(each.offer.client is client for each in sessions) and client.name == "editor"
    assert (client.connected, client.last) == (None, 2)


def test_clients_are_bounded_and_their_names_are_cut() -> None:
    seen = ClientsSeen(lambda session: KIND, lambda: 0.0, lambda: 0.0)
    first = session("first", "n" * 5000)
    seen(first)
    for number in range(10_000):
        seen(session(str(number), "n" * 5000))
    seen(session("odd", {"not": "text"}))
    assert len(seen.newest()) == 500 and {len(client.name) for client in seen.newest()} == {0, 100}
    assert first.offer.client is not None and first.offer.client.name == "n" * 100, "its calls are still named"


def test_a_session_of_nobody_is_not_a_client() -> None:
    seen = ClientsSeen(lambda session: KIND, lambda: 0.0, lambda: 0.0)
    assert seen(session("")) is KIND and seen.newest() == []


def test_the_era_of_each_client_is_handed_on_when_it_comes() -> None:
    met: list[Era] = []
    seen = ClientsSeen(lambda session: KIND, lambda: 0.0, lambda: 0.0, met.append)
    for _ in range(2):
        seen(session("http#1", era=Era.MODERN))
        seen(session("1"))
    assert met == [Era.MODERN, Era.HANDSHAKE]
