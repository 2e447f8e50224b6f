"""Who declares an extension, and who does not."""

from typing import Any

import pytest

from mcp_hub.protocol.extensions import APPS, STREAMS, TASKS, declares, offered
from mcp_hub.types import Era


@pytest.mark.parametrize("settings", [{}, {"a": 1}])
def test_an_extension_is_declared_by_its_settings(settings: object) -> None:
    assert declares({"extensions": {TASKS: settings}}, Era.MODERN, TASKS)
    assert declares({"experimental": {STREAMS: settings}}, Era.HANDSHAKE, STREAMS)


@pytest.mark.parametrize("settings", [None, True, False, "yes", 1, []])
def test_what_is_no_object_declares_nothing(settings: object) -> None:
    assert not declares({"extensions": {TASKS: settings}}, Era.MODERN, TASKS)


NO_SETTINGS: list[Any] = [{}, [], True]


@pytest.mark.parametrize("era", Era)
@pytest.mark.parametrize(
    ("settings", "shows"),
    [
        ({"mimeTypes": ["text/html;profile=mcp-app"]}, True),
        ({"mimeTypes": ["text/plain", "text/html;profile=mcp-app"], "x": 1}, True),
        *(({"mimeTypes": types}, False) for types in ([], ["text/html"], "text/html;profile=mcp-app", None)),
        *((settings, False) for settings in NO_SETTINGS),
    ],
)
def test_a_client_shows_apps_if_it_names_their_media_type(era: Era, settings: object, shows: bool) -> None:
    assert declares({"extensions": {APPS: settings}}, era, APPS) is shows
    assert not declares({"experimental": {APPS: settings}}, era, APPS)


@pytest.mark.parametrize("era", Era)
def test_the_hub_offers_apps_in_the_words_in_which_clients_declare_them(era: Era) -> None:
    assert declares(offered(era), era, APPS)


def test_a_handshake_client_never_gets_tasks() -> None:
    assert not declares({"extensions": {TASKS: {}}, "experimental": {TASKS: {}}}, Era.HANDSHAKE, TASKS)
    assert not declares({"experimental": {STREAMS: {}}}, Era.MODERN, STREAMS)
