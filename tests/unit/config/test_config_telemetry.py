"""Where telemetry goes: nowhere unless it is said, and what is said has to work."""

from pathlib import Path

import pytest

from mcp_hub.config.load.load import Loaded, parse
from mcp_hub.config.schema import hub
from mcp_hub.config.schema.hub import TelemetrySettings
from mcp_hub.config.schema.settings import Settings
from mcp_hub.errors import ConfigError
from tests.unit.config.faults import shown_all

PLACE = "http://127.0.0.1:4318"
ENV = {"TOKEN": "t0ken-of-the-collector"}


def loaded(section: str, **env: str) -> Loaded:
    text = f"hub:\n  telemetry: {section}\nservers: {{}}\n"
    return parse(text, "servers.yaml", {**ENV, **env}, Path("/base"))


def finding(section: str) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(section)
    found = "\n".join(shown_all(caught))
    return found


def test_nothing_is_sent_by_itself() -> None:
    assert Settings().hub.telemetry == TelemetrySettings()
    everything = {"OTEL_EXPORTER_OTLP_ENDPOINT": PLACE, "OTEL_TRACES_EXPORTER": "otlp"}
    assert not loaded("{}", **everything).settings.hub.telemetry.is_on
    assert not loaded(f"{{endpoint: '{PLACE}', enabled: false}}").settings.hub.telemetry.is_on


def test_an_endpoint_or_the_environment_is_enough() -> None:
    own = loaded(f"{{endpoint: '{PLACE}', headers: {{Authorization: 'Bearer ${{TOKEN}}'}}}}")
    assert own.settings.hub.telemetry.is_on
    assert "t0ken-of-the-collector" in own.secrets and "t0ken" not in repr(own.settings)
    assert loaded("{enabled: true}", OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=PLACE).settings.hub.telemetry.is_on


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ("{enabled: true}", "hub.telemetry.enabled [missing_key]"),
        ("{headers: {a: b}}", "hub.telemetry.headers [missing_key]"),
        ("{endpoint: 'collector:4318'}", "hub.telemetry.endpoint [invalid_url]"),
        ("{endpoint: 'http://u:p@collector'}", "hub.telemetry.endpoint [invalid_url]"),
        ("{endpoint: 'http://collector?key=x'}", "hub.telemetry.endpoint [invalid_url]"),
        (f"{{endpoint: '{PLACE}', headers: {{'a b': c}}}}", "hub.telemetry.headers [invalid_value]"),
    ],
)
def test_what_cannot_work_is_said_with_its_place(section: str, expected: str) -> None:
    said = finding(section)
    assert expected in said and said.startswith("servers.yaml:2: ")


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "_NEEDED", ("opentelemetry_that_nobody_has.sdk",))
    assert "[not_installed]" in finding(f"{{endpoint: '{PLACE}'}}")
    assert not loaded("{}").settings.hub.telemetry.is_on
