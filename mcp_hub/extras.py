"""The extras of the package, and the commands that install them, or the hub, in an installation like this one."""

import json
import shlex
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

EXTRAS: Final = {
    **{"keyring": "keyring", "otel": "opentelemetry", "redis": "redis", "socks": "socksio", "top": "textual"},
    "uvx": "uv",
}
"""The extras of the package, each with a module by which it is known to be there."""


_CACHES: Final = {"/uv/archive-v": "uv tool install", "/.cache/uv/": "uv tool install", "/pipx/.cache/": "pipx install"}
"""Parts of paths that are emptied now and then, and what installs the same to stay."""


def with_extra(extra: str, prefix: str = sys.prefix, package: Path = Path(__file__).parent) -> str:
    """The command that adds an extra to the installation of the hub at `prefix`, whatever made that.

    pipx and uv tool install anew, so the command also names the extras that are there. `package` is the folder of the
    hub's code.
    """
    checkout = package.parent
    is_checkout = (checkout / "pyproject.toml").is_file()
    source = str(checkout) if is_checkout else _source(package)
    present = [name for name, module in EXTRAS.items() if name == extra or find_spec(module) is not None]
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
    """The command that installs the hub to stay, if `prefix` is in a cache of uvx or `pipx run`; else None."""
    tool = _tool_of_cache(prefix)
    return None if tool is None else f"{tool} mcp-hub"


def keyring_command(service: str, name: str) -> str:
    """The command that stores an entry of the keyring: the program of this installation where no other is found."""
    program = Path(sys.prefix) / ("Scripts/keyring.exe" if sys.platform == "win32" else "bin/keyring")
    is_hidden = shutil.which("keyring") is None and program.is_file()
    return f"{shlex.quote(str(program)) if is_hidden else 'keyring'} set {service} {name}"


def _tool_of_cache(prefix: str) -> str | None:
    folder = f"{Path(prefix).as_posix()}/"
    return next((tool for part, tool in _CACHES.items() if part in folder), None)


def _source(package: Path) -> str:
    """The folder that the package was installed from, else its name in the package index (PEP 610)."""
    for record in package.parent.glob("mcp_hub-*.dist-info/direct_url.json"):
        try:
            url = urlsplit(json.loads(record.read_bytes())["url"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
        if url.scheme == "file":
            return unquote(url.path)
    return "mcp-hub"
