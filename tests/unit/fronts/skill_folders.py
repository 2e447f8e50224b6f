"""Folders of skills on disk, and a hub in this process that serves them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from mcp_hub.app.build import App, open_app
from mcp_hub.config.load.load import Loaded
from mcp_hub.config.schema.settings import Settings


def write_skill(root: Path, path: str, /, description: str = "Does it", **files: str) -> None:
    """A skill in the folder `path`; the names of `files` have `__` for a slash and `_` for a dot."""
    folder = root / path
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "SKILL.md").write_text(f"---\nname: {folder.name}\ndescription: {description}\n---\nBody\n")
    for name, text in files.items():
        file = folder / name.replace("__", "/").replace("_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def digest(content: bytes) -> str:
    return f"sha256:{sha256(content).hexdigest()}"


@asynccontextmanager
async def skill_hub(root: Path, servers: dict[str, Any], **settings: Any) -> AsyncIterator[App]:
    """A hub over folders of skills: the value of a server is its folder, or all of its settings."""
    made = {name: {"skills": str(own)} if isinstance(own, Path) else own for name, own in servers.items()}
    loaded = Settings.model_validate({"servers": made, "hub": {"store": {"type": "memory"}}, **settings})
    state = {"MCP_HUB_STATE_DIR": str(root / "state")}
    async with open_app(Loaded(loaded, root / "servers.yaml", frozenset()), state) as app:
        yield app
