"""What an editor that knows the JSON Schema of the file would accept."""

from functools import cache

import jsonschema_rs

from mcp_hub.config.schema.settings import json_schema

__all__ = ["accepts"]


@cache
def _validator() -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(json_schema())


def accepts(document: object) -> bool:
    return _validator().is_valid(document)
