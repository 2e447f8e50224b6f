"""What the artefacts say about the hub: read once, from `pyproject.toml`."""

import tomllib
from pathlib import Path
from typing import Final

import msgspec

ROOT: Final = Path(__file__).parents[2]


class Facts(msgspec.Struct, frozen=True):
    """The hub as a package; `registry_name` is its name in the MCP registry, in the namespace of its publisher."""

    name: str
    version: str
    description: str
    license: str
    keywords: list[str]
    python: str
    extras: list[str]
    registry_name: str
    display_name: str
    author: str

    @property
    def command(self) -> list[str]:
        """Starts the hub of this version without an installation, with the configuration of the user.

        Clients start plugins in a project's folder, whose `servers.yaml` must not be read.
        """
        return ["uvx", f"{self.name}@{self.version}", "serve", "--config", "@user"]


def read_facts(root: Path = ROOT) -> Facts:
    """Raises `KeyError` for a fact that is missing."""
    data = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    project, own = data["project"], data["tool"]["mcp-hub"]
    return Facts(
        name=project["name"],
        version=project["version"],
        description=project["description"],
        license=project["license"],
        keywords=project["keywords"],
        python=project["requires-python"],
        extras=list(project["optional-dependencies"]),
        registry_name=own["registry-name"],
        display_name=own["display-name"],
        author=own["author"],
    )
