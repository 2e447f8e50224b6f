import pytest

from mcp_hub.protocol import eras
from mcp_hub.types import Era

UNKNOWN: list[object] = [*eras.MODERN_VERSIONS, "1999-01-01", "", None, 5, [], "2025-11-25 "]


@pytest.mark.parametrize(
    ("requested", "version"),
    [*((known, known) for known in eras.HANDSHAKE_VERSIONS), *((other, "2025-11-25") for other in UNKNOWN)],
)
def test_initialize_settles_on_the_requested_version_or_the_latest(requested: object, version: str) -> None:
    assert eras.negotiate(requested) == version and eras.era_of(version) is Era.HANDSHAKE


def test_an_unknown_version_counts_as_modern_where_it_is_refused_by_name() -> None:
    assert eras.era_of("2031-01-01") is Era.MODERN
    assert eras.unsupported_version("2031-01-01") == {"supported": ["2026-07-28"], "requested": "2031-01-01"}


@pytest.mark.parametrize(
    ("method", "handshake", "modern"),
    [
        *(("ping", True, False), ("initialize", True, False), ("logging/setLevel", True, False)),
        *(("server/discover", False, True), ("tools/call", True, True), ("resources/templates/list", True, True)),
        *(("tasks/result", False, False), ("tasks/list", False, False), ("nonsense", False, False), ("", False, False)),
    ],
)
def test_an_era_has_its_methods(method: str, handshake: bool, modern: bool) -> None:
    assert (eras.serves(Era.HANDSHAKE, method), eras.serves(Era.MODERN, method)) == (handshake, modern)
