"""The key `retry`: pauses for each class of failures, from one rule for all or from one for each."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.config.load.load import parse
from mcp_hub.config.schema.defaults import RetryClass, RetrySettings
from mcp_hub.config.schema.settings import Settings
from mcp_hub.errors import ConfigError
from tests.unit.config.test_config_schema import mistakes

ALWAYS = ("not_sent", "rate_limited", "unavailable")


def text(retry: str) -> str:
    return f"servers: {{a: {{command: x, retry: {retry}}}}}"


def settings(retry: str, env: dict[str, str] | None = None) -> Settings:
    return parse(text(retry), "servers.yaml", env or {}, Path("/base")).settings


def pauses(retry: str) -> Mapping[RetryClass, tuple[float, ...]]:
    return settings(retry).tool_rules("a", "t").retry.pauses


@pytest.mark.parametrize(
    ("retry", "expected"),
    [
        ("{}", dict.fromkeys((*ALWAYS, "lost"), (0.25, 0.5))),
        ("{attempts: 1}", dict.fromkeys((*ALWAYS, "lost"), ())),
        ("{'on': []}", {}),
        ("{attempts: 4, first: 2s, factor: 3, most: 10s, 'on': [lost]}", {"lost": (2, 6, 10)}),
        ("{first: 1s, factor: 1, 'on': [not_sent, timeout]}", {"not_sent": (1, 1), "timeout": (1, 1)}),
        (
            "{factor: 1, 'on': {not_sent: {first: 2s}, lost: {attempts: 4, first: 1s},"
            " timeout: {attempts: 6, first: 5s}}}",
            {"not_sent": (2, 2), "lost": (1, 1, 1), "timeout": (5, 5, 5, 5, 5)},
        ),
        (
            "{attempts: 4, first: 1s, most: 3s, 'on': {not_sent: {}, lost: , timeout: {attempts: 2}}}",
            {"not_sent": (1, 2, 3), "lost": (1, 2, 3), "timeout": (1,)},
        ),
        ("{'on': {rate_limited: {first: 2m, most: 5m, factor: 2}}}", {"rate_limited": (120, 240)}),
    ],
)
def test_pauses_of_a_class_are_its_own_else_those_of_the_rule(
    retry: str, expected: dict[str, tuple[float, ...]]
) -> None:
    assert pauses(retry) == expected
    assert mistakes(text(retry)) == []


def test_timeouts_are_retried_only_if_they_are_listed() -> None:
    assert "timeout" not in RetrySettings().pauses
    assert "timeout" in RetrySettings.model_validate({"on": ["timeout"]}).pauses


def test_values_from_outside_are_read_as_any_others() -> None:
    own = settings("{attempts: '${N}', first: '${F}', 'on': {lost: {most: '${M}'}}}", {"N": "3", "F": "4s", "M": "5s"})
    assert dict(own.tool_rules("a", "t").retry.pauses) == {"lost": (4, 5)}


@pytest.mark.parametrize(
    ("retry", "finding"),
    [
        ("{attempts: 11}", "retry.attempts: must be at most 10 [out_of_range]"),
        ("{first: 0}", "retry.first: must be longer than 0"),
        ("{first: 2h}", "retry.first: must be at most 1 h"),
        ("{most: 2h}", "retry.most: must be at most 1 h"),
        ("{factor: 0}", "retry.factor: must be at least 1 [out_of_range]"),
        ("{factor: 11}", "retry.factor: must be at most 10 [out_of_range]"),
        ("{factor: 1.5}", "retry.factor: expected a whole number [wrong_type]"),
        ("{first: 2m}", "retry.first: 120 s is longer than most, 60 s. Raise most or lower first. [conflicting_keys]"),
        ("{first: 5s, most: 1s}", "retry.first: 5 s is longer than most, 1 s"),
        ("{'on': {lost: {first: 2m}}}", "retry.on.lost.first: 120 s is longer than most, 60 s"),
        ("{first: 5s, 'on': {lost: {most: 1s}}}", "retry.on.lost.most: 1 s is shorter than first, 5 s"),
        ("{'on': timeout}", "retry.on: expected a list such as [not_sent, timeout], or a mapping such as"),
        ("{'on': [always]}", 'retry.on[0]: expected "not_sent", "rate_limited", "unavailable", "lost" or "timeout"'),
        ("{'on': [timeout, 1]}", 'retry.on[1]: expected "not_sent", "rate_limited"'),
        (
            "{'on': {timeot: {}}}",
            'retry.on.timeot: expected "not_sent", "rate_limited", "unavailable", "lost" or "timeout"',
        ),
        ("{'on': {timeout: 3}}", "retry.on.timeout: expected a mapping (key: value) [wrong_type]"),
        ("{'on': {timeout: {attempts: 0}}}", "retry.on.timeout.attempts: must be at least 1 [out_of_range]"),
        ("{'on': {timeout: {times: 2}}}", 'retry.on.timeout.times: unknown key "times"'),
    ],
)
def test_mistake_is_shown_with_its_key_and_its_cure(retry: str, finding: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings(retry)
    (shown,) = str(caught.value).split("\n")
    assert f"servers.a.{finding}" in shown


@pytest.mark.parametrize(
    ("server", "warnings", "notes"),
    [
        ("retry: {'on': [timeout]}", [], ["servers.a.retry.on"]),
        ("retry: {'on': [timeout]}, per_tool: {t: {idempotent: true}}", [], []),
        ("retry: {'on': [timeout]}, idempotent: true", [], []),
        ("retry: {'on': {lost: {}, timeout: {attempts: 1}}}", [], []),
        ("per_tool: {t: {retry: {'on': {timeout: {}}}}}", ["servers.a.per_tool.t.retry.on"], []),
        ("per_tool: {t: {retry: {'on': {timeout: {}}}, idempotent: true}}", [], []),
        ("idempotent: true, per_tool: {t: {retry: {'on': {timeout: {}}}}}", [], []),
        (
            "idempotent: true, per_tool: {t: {retry: {'on': [timeout]}, idempotent: false}}",
            ["servers.a.per_tool.t.retry.on"],
            [],
        ),
    ],
)
def test_timeouts_of_tools_that_may_act_twice_are_a_warning(server: str, warnings: list[str], notes: list[str]) -> None:
    loaded = parse(f"servers: {{a: {{command: x, {server}}}}}", "servers.yaml", {}, Path("/base"))
    assert [finding.path for finding in loaded.warnings] == warnings
    assert [finding.path for finding in loaded.notes] == notes
    for finding in (*loaded.warnings, *loaded.notes):
        assert finding.message.endswith("is called once. Set idempotent: true if it may be called again.")


AMOUNTS = st.fixed_dictionaries(
    {
        "attempts": st.integers(1, 10),
        "first": st.floats(0.001, 3600),
        "factor": st.integers(1, 10),
        "most": st.floats(0.001, 3600),
    }
)


@given(AMOUNTS)
def test_pauses_never_shrink_and_stay_between_first_and_most(amounts: dict[str, float]) -> None:
    amounts["most"] = max(amounts["first"], amounts["most"])
    one = RetrySettings.model_validate({"on": {"timeout": amounts}}).pauses
    each = RetrySettings.model_validate({**amounts, "on": ["timeout"]}).pauses
    assert one == each and one.keys() == {"timeout"}
    listed = one["timeout"]
    assert len(listed) == amounts["attempts"] - 1
    assert list(listed[:1]) == [amounts["first"]][: len(listed)]
    assert list(listed) == sorted(listed) and all(pause <= amounts["most"] for pause in listed)
    for before, after in zip(listed, listed[1:], strict=False):
        assert after == pytest.approx(min(before * amounts["factor"], amounts["most"]))
