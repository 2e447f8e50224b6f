"""Where a client of a hub connects to, and what it refuses before it sends anything."""

import pytest

from mcp_hub.client.http import connect, endpoint
from mcp_hub.errors import ConfigError

URL = "http://127.0.0.1:8765/mcp"


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://127.0.0.1:8765", URL),
        ("http://127.0.0.1:8765/", URL),
        (URL, URL),
        (f"{URL}/", URL),
        ("https://example.com/hub?x=1", "https://example.com/hub?x=1"),
        ("http://[::1]:8765", "http://[::1]:8765/mcp"),
    ],
)
def test_endpoint_may_be_given_with_or_without_its_path(given: str, url: str) -> None:
    assert endpoint(given) == url


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8765", "localhost:8765", "ftp://a", "http://", "http://a:b", "http://a b", "http://a\n/mcp"]
)
def test_text_that_is_not_a_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        endpoint(url)
    assert [finding.code for finding in refused.value.findings] == ["invalid_hub_url"]


def test_password_in_a_url_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigError) as refused:
        endpoint("http://me:hunter22@127.0.0.1:8765")
    assert "hunter22" not in str(refused.value)


def test_token_that_a_header_cannot_carry_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigError) as refused:
        connect(URL, "hunter22\n")
    assert "hunter22" not in str(refused.value)
