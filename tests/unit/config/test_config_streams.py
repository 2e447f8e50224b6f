"""For how long the connection of a long call stays open (`hub.http.close_streams_after`)."""

from pathlib import Path

import pytest

from mcp_hub.config.load.load import parse
from mcp_hub.errors import ConfigError


def setting(value: str) -> float | None:
    text = f"hub:\n  http:\n    close_streams_after: {value}\nservers: {{}}"
    return parse(text, "servers.yaml", {"IDLE": "45s"}, Path("/base")).settings.hub.http.close_streams_after


@pytest.mark.parametrize(("value", "seconds"), [("", None), ("null", None), ("30", 30), ("2m", 120), ("${IDLE}", 45)])
def test_it_is_off_or_a_duration_of_half_a_minute_and_more(value: str, seconds: float | None) -> None:
    assert setting(value) == seconds


@pytest.mark.parametrize("value", ["0", "29.9s", "1ms"])
def test_a_shorter_one_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match=r"servers.yaml:3: hub.http.close_streams_after: must be at least 30"):
        setting(value)
