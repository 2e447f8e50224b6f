"""The plain data of a file in JSON with comments, TOML or YAML, by the suffix of its name. Pure."""

import json

from mcp_hub.config.findings import Findings
from mcp_hub.config.load.locate import json_mapping, long_number, plain_json, read_document
from mcp_hub.errors import ConfigError, ConfigFinding


def form_of(name: str) -> str:
    """The format of a file of this name: json, toml or yaml."""
    return {"toml": "toml", "yaml": "yaml", "yml": "yaml"}.get(name.rpartition(".")[2].lower(), "json")


def read_data(text: str, name: str) -> object:
    """The plain data of a file with this name (its suffix says the format); None for a text without any.

    Raises `ConfigError` for a text that is not in the format.
    """
    text = text.removeprefix("\ufeff")
    if (form := form_of(name)) != "json":
        document = read_document(text, name)
        if document.findings and form == "toml":  # the client itself does not read it
            raise ConfigError(*Findings(name, document.lines, errors=list(document.findings)).failure().findings)
        return document.data
    try:  # not `read_document`: files of a client may have megabytes
        return json.loads(text, object_pairs_hook=json_mapping)
    except (ValueError, RecursionError):
        blank = plain_json(text)
    if not blank.strip():
        return None
    try:
        return json.loads(blank, object_pairs_hook=json_mapping)
    except RecursionError:
        raise ConfigError(ConfigFinding("too_deep", "nested too deep. Make it flatter.", name)) from None
    except json.JSONDecodeError as error:
        said = f"not valid JSON: {error.msg}. Correct the line."
        raise ConfigError(ConfigFinding("invalid_json", said, name, error.lineno, error.colno)) from None
    except ValueError as error:
        said = "not valid JSON. Correct it."
        raise ConfigError(
            long_number(error, blank, "invalid_json", name) or ConfigFinding("invalid_json", said, name)
        ) from None


def held_at(data: object, key: tuple[str, ...]) -> object:
    """The value at a path of keys; None if there is nothing."""
    for step in key:
        data = data.get(step) if isinstance(data, dict) else None
    return data
