"""What the table says of a failure: the client's own only if it is known and was seen without the hub."""

import pytest

from tests.clients.clients import CLIENTS
from tests.clients.known import KNOWN, known_faults
from tests.clients.matrix import Choice, rows
from tests.clients.run import Outcome, Row
from tests.clients.table import failures, markdown

ROW = Row(CLIENTS["python-mcp-1"], "http", "modern")
FAULT = next(fault for fault in KNOWN if fault.may_be_in(ROW, "cancel"))
KNOWN_FAILURE = Outcome("cancel", False, "the server was not told")


@pytest.mark.parametrize(
    ("row", "outcome", "is_shown", "verdict"),
    [
        (ROW, Outcome("cancel", True), True, "ok"),
        (ROW, KNOWN_FAILURE, True, "known"),
        (ROW, KNOWN_FAILURE, False, "FAIL"),
        (ROW, Outcome("cancel", False, "not done in 25 s"), True, "FAIL"),
        (ROW, Outcome("call", False, KNOWN_FAILURE.detail), True, "FAIL"),
        (Row(CLIENTS["python-mcp-2-auto"], "http", "modern"), KNOWN_FAILURE, True, "FAIL"),
    ],
)
def test_only_a_known_fault_that_shows_without_the_hub_is_excused(
    row: Row, outcome: Outcome, is_shown: bool, verdict: str
) -> None:
    results = {row: [outcome]}
    shown = {(row.client.name, FAULT)} if is_shown else set()
    assert verdict in [cell.strip() for cell in markdown(results, shown)[2].split("|")]
    assert failures(results, shown) == ([(row, outcome)] if verdict == "FAIL" else [])


def test_a_known_fault_that_is_gone_is_told_of() -> None:
    lines = markdown({ROW: [Outcome("cancel", True)]}, set())
    assert lines[-1].startswith("* not seen python-mcp-1, cancel")


def test_large_answers_through_the_hub_are_never_excused() -> None:
    refused = Outcome("large", False, "SSE stream failed: Server-sent event exceeded the 1048576 byte limit.")
    client = CLIENTS["python-mcp-2-legacy"]
    assert known_faults({Row(client, "direct-http", "handshake"): [refused]})
    assert not known_faults({Row(client, "http", "handshake"): [refused]})


def test_every_client_meets_both_servers_on_each_of_its_fronts() -> None:
    met = {(row.client.name, row.front, row.era) for row in rows(Choice())}
    expected = {(c.name, front, era) for c in CLIENTS.values() for front in c.fronts for era in ("handshake", "modern")}
    assert met == expected
