"""What rigs take from the log of a hub."""

from rigs.report import crashes

LOST = '{"upstream": "git", "code": "start_crashed", "event": "upstream_state", "level": "warning"}'
FAULT = '{"method": "ping", "event": "request_crashed", "level": "error"}'


def test_a_fault_of_the_hub_is_found_and_a_server_that_crashed_is_not_one() -> None:
    assert crashes(f"{LOST}\n{FAULT}\nTraceback (most recent call last):") == [
        FAULT,
        "Traceback (most recent call last):",
    ]
