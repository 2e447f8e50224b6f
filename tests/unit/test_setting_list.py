"""The configuration as the dashboard lists it: every value with its origin, and no value that may be secret."""

import msgspec

from mcp_hub.app.dashboard.edits import setting_list
from mcp_hub.config.schema.settings import Settings

SECRET = "s3cr3t-value"
SETTINGS = Settings.model_validate({
    "hub": {"budget": 5, "tokens": [{"token": SECRET, "principal": "a"}]},
    "servers": {
        "git": {
            "command": "git", "args": ["--key", SECRET], "env": {"KEY": SECRET},
            "per_tool": {"push": {"hide": True, "fixed": {"key": SECRET}, "arguments": {"other": SECRET}}},
        },
        "web": {"url": "https://example.org/mcp", "headers": {"X-Key": SECRET}, "bearer": SECRET},
    },
    "profiles": {"few": {"servers": ["git"]}},
})  # fmt: skip


def test_settings_are_listed_with_their_origin_and_without_a_secret() -> None:
    listed = setting_list(SETTINGS, {})
    assert SECRET not in msgspec.json.encode(listed).decode()
    values = {one.path: one.value for one in listed}
    assert values["servers.git.env"] == '{"KEY": "***"}' and values["servers.git.args"] == "***"
    assert values["servers.web.headers"] == '{"X-Key": "***"}'
    assert values["servers.git.command"] == "git" and values["profiles.few.servers"] == '["git"]'
    found = {one.path: one.origin for one in setting_list(SETTINGS, {"git": {"push": {"hide": True}}})}
    assert (found["hub.budget"], found["hub.compact"]) == ("file", "default")
    assert found["servers.git.per_tool.push.hide"] == "overrides"
    assert found["servers.git.per_tool.push.fixed"] == "file"
    assert "servers.git.timeout" not in found, "of servers only what was written"
