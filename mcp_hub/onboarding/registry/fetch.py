"""Reads a `server.json` from a file, a URL, or the registry."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import quote

import httpx2

from mcp_hub import __version__
from mcp_hub.addresses import refused_place
from mcp_hub.clock import SystemClock
from mcp_hub.config.load.texts import read_bytes
from mcp_hub.errors import ConfigError, ConfigFinding
from mcp_hub.files import LARGEST_OWN
from mcp_hub.masking import hide_head

_SECONDS: Final = 20.0
_SERVER: Final = "/v0.1/servers/{}/versions/latest"
"""The path of a server in the API of the MCP registry."""


def read_server_json(source: str, registry: Callable[[], str | None]) -> bytes:
    """The document; `registry` returns the registry's URL. Raises `ConfigError`."""
    if re.match(r"https?://", source):
        return _fetched(source)
    path = Path(source).expanduser()
    if path.suffix == ".json" or os.path.isfile(path):
        return read_bytes(path, LARGEST_OWN)[0]
    url = registry()
    if url is None:
        message = f"{source!r} is neither a file nor a URL. Name a command: mcp-hub add {source} -- COMMAND… "
        message += "To look up names in a registry, set hub.registry to its URL."
        raise ConfigError(ConfigFinding("no_registry", message))
    return _fetched(url.rstrip("/") + _SERVER.format(quote(source, safe="")))


def _fetched(url: str) -> bytes:
    if (problem := refused_place(url, is_near=True)) is not None:  # http:// to this machine only
        raise ConfigError(ConfigFinding("invalid_url", f"cannot be used: {problem}", hide_head(url, 200)))
    headers = {"accept": "application/json", "user-agent": f"mcp-hub/{__version__}", "accept-encoding": "identity"}
    content = bytearray()
    is_whole = False
    try:
        with httpx2.stream("GET", url, headers=headers, timeout=_SECONDS, follow_redirects=False) as answer:
            if answer.status_code != 200:
                message = f"answered with {answer.status_code}. Check the URL or the name."
                raise ConfigError(ConfigFinding("fetch_failed", message, url))
            started = SystemClock.now()
            for part in answer.iter_raw():  # not decoded: a few bytes can become gigabytes
                content += part
                if len(content) > LARGEST_OWN or SystemClock.now() - started > _SECONDS:
                    break
            else:
                is_whole = True
    except (httpx2.HTTPError, OSError) as problem:
        message = f"cannot be fetched: {type(problem).__name__}. Check the URL and the network."
        raise ConfigError(ConfigFinding("fetch_failed", message, url)) from None
    if len(content) > LARGEST_OWN:
        raise ConfigError(ConfigFinding("config_too_large", f"larger than {LARGEST_OWN} bytes", url))
    if not is_whole:
        message = f"does not arrive within {_SECONDS:g} s. Check the URL and the network."
        raise ConfigError(ConfigFinding("fetch_failed", message, url))
    return bytes(content)
