"""Findings as tests compare them: place, key and code, without the sentence."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from mcp_hub.errors import ConfigError, ConfigFinding


def shown(finding: ConfigFinding) -> str:
    """`file:line: path [code]`."""
    place = ":".join(str(part) for part in (finding.file, finding.line, finding.column) if part is not None)
    return f"{': '.join(part for part in (place, finding.path) if part)} [{finding.code}]"


def shown_all(findings: Iterable[ConfigFinding] | pytest.ExceptionInfo[ConfigError]) -> list[str]:
    if isinstance(findings, pytest.ExceptionInfo):
        findings = findings.value.findings
    return [shown(own) for own in findings]


def findings(load: Callable[..., object], *args: Any, **more: Any) -> list[str]:
    """All findings about what cannot be loaded, none of which shows a secret of the tests."""
    with pytest.raises(ConfigError) as caught:
        load(*args, **more)
    assert "s3cr3t" not in str(caught.value)
    return shown_all(caught)


def refused(load: Callable[..., object], *args: Any) -> str:
    """The one finding about what cannot be loaded."""
    (finding,) = findings(load, *args)
    return finding
