"""Who declares an extension, and who does not."""

from typing import Any

import pytest
from msgspec import Raw

from mcp_hub.protocol.eras import LATEST_HANDSHAKE, LATEST_MODERN
from mcp_hub.protocol.extensions import (
    APPS,
    EVERYTHING,
    STREAMS,
    TASKS,
    declares,
    hub_capabilities,
    with_mark,
    without_mark,
)
from mcp_hub.types import CallId, Era


@pytest.mark.parametrize("settings", [{}, {"a": 1}, None, True, False, "yes", 1, []])
def test_an_extension_is_declared_by_an_object_of_settings(settings: object) -> None:
    is_object = isinstance(settings, dict)
    assert declares({"extensions": {TASKS: settings}}, Era.MODERN, TASKS) is is_object
    assert declares({"experimental": {STREAMS: settings}}, Era.HANDSHAKE, STREAMS) is is_object


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
    version = LATEST_MODERN if era is Era.MODERN else LATEST_HANDSHAKE
    assert declares(hub_capabilities(version, EVERYTHING), era, APPS)


def test_a_handshake_client_never_gets_tasks() -> None:
    assert not declares({"extensions": {TASKS: {}}, "experimental": {TASKS: {}}}, Era.HANDSHAKE, TASKS)
    assert not declares({"experimental": {STREAMS: {}}}, Era.MODERN, STREAMS)


@pytest.mark.parametrize(
    ("result", "rest"),
    [
        (b'{"content":[]}', b'{"content":[]}'),
        (b'{"content":[],"_meta":{"dev.mcp-hub/streams":{"stream":"st_1"}}}', b'{"content":[]}'),
        (b'{"_meta":{"a":1e2,"dev.mcp-hub/streams":1}}', b'{"_meta":{"a":1e2}}'),
        (b'{"content":["dev.mcp-hub/streams"],"_meta":{}}', b'{"content":["dev.mcp-hub/streams"],"_meta":{}}'),
    ],
)
def test_the_mark_of_the_hop_before_is_taken_off_and_nothing_else(result: bytes, rest: bytes) -> None:
    assert bytes(without_mark(Raw(result))) == rest


def test_a_mark_that_was_put_on_comes_off() -> None:
    marked = with_mark(Raw(b'{"content":[]}'), CallId("st_1"), 7, "completed")
    assert b'"cursor":"7"' in bytes(marked) and bytes(without_mark(marked)) == b'{"content":[]}'
