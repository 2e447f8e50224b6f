"""Connector entries: valid by the providers' types, with a public address, a placeholder for the token, the listing."""

import pytest

from mcp_hub.formats.providers import TOKEN, connect, endpoint
from tests.unit.formats import sdk_types
from tests.unit.formats.sdk_types import fits
from tests.unit.formats.tool_lists import OWN, refused

URL = "https://hub.example.com/mcp"
LISTING = OWN[:3]
NAMES = [tool["name"] for tool in LISTING]


def test_anthropic_connects_with_the_pinned_listing() -> None:
    entries = connect("anthropic-mcp", URL, LISTING)
    (server,), (toolset,) = entries["mcp_servers"], entries["tools"]
    assert fits(sdk_types.BETA, "BetaRequestMCPServerURLDefinitionParam", server)
    assert fits(sdk_types.BETA, "BetaMCPToolsetParam", toolset)
    assert (server["url"], server["authorization_token"]) == (URL, TOKEN)
    assert server["name"] == toolset["mcp_server_name"]
    assert [(tool["name"], tool["input_schema"]) for tool in toolset["tools"]] == [
        (tool["name"], tool["inputSchema"]) for tool in LISTING
    ]
    assert not {"default_config", "configs"} & toolset.keys() and entries["betas"] == ["mcp-client-2026-09-15"]


def test_anthropic_switches_off_tools_that_are_not_selected_and_keeps_the_listing() -> None:
    (search, toolset) = connect("anthropic-mcp", URL, LISTING, selected=NAMES[1:2], is_deferred=True)["tools"]
    assert search["type"].startswith("tool_search_tool_")
    assert toolset["default_config"] == {"enabled": False, "defer_loading": True}
    assert toolset["configs"] == {NAMES[1]: {"enabled": True}}
    assert [tool["name"] for tool in toolset["tools"]] == NAMES
    assert fits(sdk_types.BETA, "BetaMCPToolsetParam", toolset)


def test_openai_connects_with_the_names_of_the_listing() -> None:
    (entry,) = connect("openai-mcp", URL, LISTING, label="mcp hub/α")["tools"]
    assert fits("openai.types.responses.tool_param", "Mcp", entry) and entry["server_label"] == "mcp-hub--"
    assert (entry["server_url"], entry["authorization"], entry["require_approval"]) == (URL, TOKEN, "always")
    assert entry["allowed_tools"] == {"tool_names": NAMES} and "defer_loading" not in entry
    search, entry = connect("openai-mcp", URL, LISTING, selected=NAMES[1:2], is_deferred=True)["tools"]
    assert search == {"type": "tool_search"} and entry["defer_loading"] is True
    assert entry["allowed_tools"] == {"tool_names": NAMES[1:2]}


def test_gemini_connects_with_the_names_of_the_listing_and_a_header() -> None:
    (entry,) = connect("gemini-mcp", URL, LISTING, label="mcp-hub-α")["tools"]
    assert fits(sdk_types.INTERACTIONS, "MCPServer", entry, exclude_unset=True)
    assert (entry["name"], entry["url"]) == ("mcp_hub__", URL)
    assert entry["headers"] == {"Authorization": f"Bearer {TOKEN}"}
    assert entry["allowed_tools"] == [{"tools": NAMES}] and "defer_loading" not in entry
    search, entry = connect("gemini-mcp", URL, LISTING, selected=NAMES[1:2], is_deferred=True)["tools"]
    assert search == {"type": "tool_search"} and entry["defer_loading"] is True
    assert entry["allowed_tools"] == [{"tools": NAMES[1:2]}]


@pytest.mark.parametrize(
    ("base", "profile", "url"),
    [
        ("https://hub.example.com", None, URL),
        ("https://hub.example.com/", None, URL),
        ("https://hub.example.com/mcp", None, URL),
        ("https://hub.example.com:8443/tools", None, "https://hub.example.com:8443/tools/mcp"),
        ("https://hub.example.com", "a b/c", f"{URL}/p/a%20b%2Fc"),
        ("https://8.8.8.8", None, "https://8.8.8.8/mcp"),
        ("https://[2001:4860:4860::8888]", None, "https://[2001:4860:4860::8888]/mcp"),
    ],
)
def test_endpoint_follows_from_the_public_address(base: str, profile: str | None, url: str) -> None:
    assert endpoint(base, profile) == url


@pytest.mark.parametrize(
    "base",
    [
        None, "", "hub.example.com", "http://hub.example.com", "ftp://hub.example.com", "https://", "https:///mcp",
        "https://localhost:8765", "https://hub", "https://hub.local", "https://a.localhost", "https://hub.internal.",
        "https://127.0.0.1", "https://10.1.2.3", "https://192.168.0.1", "https://[::1]", "https://[fd00::1]",
        "https://0x7f.1", "https://2130706433", "https://0177.0.0.1", "https://169.254.169.254", "https://[::",
        "https://user@hub.example.com", "https://hub.example.com?token=x", "https://hub.example.com#x",
        "https://hub.example.com:x", "https://hub.example.com/a b", "https://hub.example.com/\n", "https://hüb.example.com",
        "https://[::ffff:127.0.0.1]", "https://a..example.com", f"https://hub.example.com/{'a' * 2000}",
    ],
)  # fmt: skip
def test_address_that_no_provider_can_reach_is_refused(base: str | None) -> None:
    assert "hub.http.public_url" in refused("public_url_required", endpoint, base, None)
