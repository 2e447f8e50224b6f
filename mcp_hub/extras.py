"""The package's extras, and commands that install them or the hub."""

import json
import shlex
import shutil
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

EXTRAS: Final = {
    **{"keyring": "keyring", "otel": "opentelemetry.sdk", "redis": "redis", "socks": "socksio", "top": "textual"},
    **{"uvx": "uv", "code": "pydantic_monty"},
}
"""Each extra with a module that shows it."""


_CACHES: Final = {"/uv/archive-v": "uv tool install", "/.cache/uv/": "uv tool install", "/pipx/.cache/": "pipx install"}
"""Parts of cache paths, and commands for permanent installations."""


def is_installed(extra: str) -> bool:
    """Whether the package of an extra is there; it is not imported."""
    module = EXTRAS.get(extra)
    return module is not None and _has(module)


def _has(module: str) -> bool:
    with suppress(ModuleNotFoundError):  # of the package that it would be in
        return find_spec(module) is not None
    return False


def with_extra(extra: str, prefix: str = sys.prefix, package: Path = Path(__file__).parent) -> str:
    """The command that adds an extra to the installation at `prefix`, with the extras already there."""
    checkout = package.parent
    is_checkout = (checkout / "pyproject.toml").is_file()
    source = str(checkout) if is_checkout else _source(package)
    present = [name for name, module in EXTRAS.items() if name == extra or _has(module)]
    both = shlex.quote(f"{source}[{','.join(present)}]")
    editable = "--editable " if is_checkout else ""
    if (tool := _tool_of_cache(prefix)) is not None:
        return f"{tool} {editable}{both}"
    if (Path(prefix) / "pipx_metadata.json").is_file():
        return f"pipx install --force {editable}{both}"
    if (Path(prefix) / "uv-receipt.toml").is_file():
        return f"uv tool install --force {editable}{both}"
    single = shlex.quote(f"{source}[{extra}]")
    if prefix == sys.base_prefix:
        return f"pip install {editable}{single}"
    python = shlex.quote(str(Path(prefix) / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")))
    if find_spec("pip") is None:
        return f"uv pip install --python {python} {editable}{single}"
    return f"{python} -m pip install {editable}{single}"


def lasting_install(prefix: str = sys.prefix) -> str | None:
    """The command for a permanent installation, if `prefix` is in a cache of uvx or `pipx run`."""
    tool = _tool_of_cache(prefix)
    return None if tool is None else f"{tool} mcp-hub"


def keyring_command(service: str, name: str) -> str:
    """The command that stores an entry in the keyring."""
    program = Path(sys.prefix) / ("Scripts/keyring.exe" if sys.platform == "win32" else "bin/keyring")
    is_hidden = shutil.which("keyring") is None and program.is_file()
    return f"{shlex.quote(str(program)) if is_hidden else 'keyring'} set {service} {name}"


def _tool_of_cache(prefix: str) -> str | None:
    folder = f"{Path(prefix).as_posix()}/"
    return next((tool for part, tool in _CACHES.items() if part in folder), None)


def _source(package: Path) -> str:
    """The folder that the package was installed from (PEP 610), else its index name."""
    for record in package.parent.glob("mcp_hub-*.dist-info/direct_url.json"):
        try:
            url = urlsplit(json.loads(record.read_bytes())["url"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
        if url.scheme == "file":
            return unquote(url.path)
    return "mcp-hub"
