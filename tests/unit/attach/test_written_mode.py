"""The mode that a configuration writes is found without reading YAML; where it is not certain, nothing is said."""

import pytest

from mcp_hub.attach.variables import written_mode


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("servers: {}", ""),
        ("hub: {attach: never}", "never"),
        ("hub: {attach: never, watch: false}", "never"),
        ("hub:\n  attach: always  # for all\n", "always"),
        ('{"hub": {\n  "attach": "auto",\n  "attach_idle": "1s"\n}}', "auto"),
        ("hub:\n  attach_idle: 1s\n", ""),
        ("servers: {a: {command: /home/me/attach-rig/bin/a, args: [--attach=x]}}\n", ""),
        ("servers:\n  attachments: {command: attach}\n", ""),
        ("# attach: never\n", ""),
        ("hub: {watch: false, attach: never}", None),
        ("hub:\n  attach: ${MODE}\n", None),
        ("hub: {attach: never}\nother:\n  attach: always\n", None),
        ('{"hub": {"attach"\n: "never"}}', None),
        ("about: how to attach: by hand", None),
    ],
)
def test_mode_is_found_or_not_certain(text: str, mode: str | None) -> None:
    assert written_mode(text.encode()) == mode
