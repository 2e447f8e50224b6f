"""The search path of a background hub grows by what its clients know."""

import pytest

from mcp_hub.app.attached.hub import widened


@pytest.mark.parametrize(
    ("path", "more", "found"),
    [
        ("/a:/b", "/b:/a", "/a:/b"),
        ("/a", "/c:/a:/c:/b", "/a:/c:/b"),
        ("/a", "bin:.::/b", "/a:/b"),
        ("/a", "", "/a"),
    ],
)
def test_only_what_is_new_and_absolute_comes_behind(path: str, more: str, found: str) -> None:
    assert widened(path, more) == found


def test_it_has_a_bound() -> None:
    many = ":".join(f"/{number}" for number in range(1000))
    assert len(widened("/a", many).split(":")) == 128
    assert widened(many, "/new") == many
