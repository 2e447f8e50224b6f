"""The models' own promises."""

from mcp_hub.config.schema.defaults import RestartSettings
from mcp_hub.config.schema.settings import ProfileSettings, Settings

SERVER = {"command": "x"}


def test_effective_value_is_the_servers_own_else_the_default() -> None:
    settings = Settings.model_validate(
        {
            "servers": {"a": {**SERVER, "timeout": "5s", "restart": {"intensity": 1}}, "b": SERVER},
            "defaults": {"timeout": "10m", "max_duration": 60},
        }
    )
    assert settings.effective("a").timeout == 5.0
    assert settings.effective("a").max_duration == 60.0
    assert settings.effective("a").restart == RestartSettings(intensity=1, period=60.0)
    assert settings.effective("b").timeout == 600.0
    assert settings.effective("b").restart == RestartSettings(intensity=5, period=60.0)


def test_defaults_are_the_documented_ones() -> None:
    settings = Settings()
    assert settings.defaults.model_dump() == {
        "timeout": 1800.0,
        "max_duration": 21600.0,
        "request_timeout": 60.0,
        "start_timeout": 60.0,
        "restart": {"intensity": 5, "period": 60.0},
        "start": "eager",
        "idle_stop": None,
        "task": "auto",
        "orphan": None,
        "idempotent": False,
        "retry": {"attempts": 3, "on": None},
        "approval": "warn",
        "hints": "trust",
        "sandbox": {"mode": "off", "read": None, "write": None, "net": "any", "sockets": []},
    }
    hub = settings.hub
    assert (hub.first_list_wait, hub.http.port, hub.task_after, hub.clients) == (None, 8765, 5.0, {})
    assert (hub.expose, hub.budget, hub.compact, hub.pinned) == ("auto", 8000, False, [])
    assert (hub.max_result_tokens, hub.aliases) == (8000, {})
    assert hub.store.model_dump(exclude={"prefix", "lease", "acknowledge"}) == {
        **{"type": "sqlite", "path": None, "url": None, "retention": 86400.0}
    }
    assert (hub.store.prefix, hub.store.lease, hub.store.acknowledge) == ("mcp-hub:", 5.0, "local")
    assert set(ProfileSettings().model_dump(exclude={"tools", "resources", "prompts"}).values()) == {None}
