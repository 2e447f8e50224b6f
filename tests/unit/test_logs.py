"""What reaches stderr: no secret, in no style, by no logger, in no traceback."""

import json
import logging
import sys
from collections.abc import Iterator

import pytest
import structlog

from mcp_hub import logs, masking

SECRET = 's3cret-"canary'


@pytest.fixture(autouse=True)
def _secret() -> Iterator[None]:
    masking.learn([SECRET, "100200300"])
    level, hook = logging.getLogger().level, sys.excepthook
    yield
    sys.excepthook = hook
    logging.getLogger().setLevel(level)
    structlog.reset_defaults()


class Odd:
    def __repr__(self) -> str:
        return f"<Odd {SECRET}>"


def say_all() -> None:
    log = structlog.get_logger("test").bind(bound=SECRET)
    log.info("plain", text=SECRET, count=100200300, nested={"a": [SECRET, Odd()], "b": (SECRET,)}, odd=Odd())
    try:
        raise ValueError(f"no {SECRET}")
    except ValueError:
        log.exception("crashed")
        logging.getLogger("library").exception("library %s", SECRET)
    log.warning(SECRET)


@pytest.mark.parametrize("style", ["json", "console"])
def test_no_line_of_the_log_holds_a_secret(
    style: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # pytest's own, beside which none would be added
    logs.configure("debug", style)
    say_all()
    said = capsys.readouterr().err
    assert "canary" not in said
    assert said.count(masking.MASK) >= 8 and "Traceback" in said and "library" in said


def test_lines_stay_json_and_numbers_stay(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("debug", "json")
    structlog.get_logger("test").info("plain", text=SECRET, count=100200300, nested={"a": [SECRET]}, none=None)
    line = json.loads(capsys.readouterr().err)
    assert line["event"] == "plain" and line["count"] == 100200300 and line["none"] is None
    assert (line["text"], line["nested"]) == (masking.MASK, {"a": [masking.MASK]})


def test_the_traceback_that_ends_the_process_is_masked(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "json")
    try:
        raise ValueError(f"no {SECRET}")
    except ValueError as error:
        sys.excepthook(type(error), error, error.__traceback__)
    said = capsys.readouterr().err
    assert "canary" not in said and said.endswith(f"ValueError: no {masking.MASK}\n")


def test_a_log_for_people_holds_no_escape_sequence_of_a_server(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    logs.configure("debug", "console")
    log = structlog.get_logger("test")
    log.info("said\x1b]0;a\x07", line="\x1b]0;b\x07")
    try:
        raise ValueError("\x1b]0;c\x07")
    except ValueError:
        log.exception("crashed")
        logging.getLogger("library").exception("\x1b]0;d\x07")
    said = capsys.readouterr().err
    assert "\x1b" not in said and "\x07" not in said
    assert all(f"\\x1b]0;{letter}\\x07" in said for letter in "abcd")
