"""Who declares an extension, and who does not."""

import pytest

from mcp_hub.protocol.extensions import STREAMS, TASKS, declares
from mcp_hub.types import Era


@pytest.mark.parametrize("settings", [{}, {"a": 1}])
def test_an_extension_is_declared_by_its_settings(settings: object) -> None:
    assert declares({"extensions": {TASKS: settings}}, Era.MODERN, TASKS)
    assert declares({"experimental": {STREAMS: settings}}, Era.HANDSHAKE, STREAMS)


@pytest.mark.parametrize("settings", [None, True, False, "yes", 1, []])
def test_what_is_no_object_declares_nothing(settings: object) -> None:
    assert not declares({"extensions": {TASKS: settings}}, Era.MODERN, TASKS)


def test_a_handshake_client_never_gets_tasks() -> None:
    assert not declares({"extensions": {TASKS: {}}, "experimental": {TASKS: {}}}, Era.HANDSHAKE, TASKS)
    assert not declares({"experimental": {STREAMS: {}}}, Era.MODERN, STREAMS)
