"""The server's skills: two pages of them, one inside of another, one that is generated,
one that is not listed (SEP-2640)."""

from hashlib import sha256
from typing import Final

import mcp_types as types
from mcp.shared.exceptions import MCPError

from rigs.conformance.server.instance import Context, Result

EXTENSION: Final = "io.modelcontextprotocol/skills"
SETTINGS: Final = {"directoryRead": True}
_CACHING: Final = {"ttlMs": 0, "cacheScope": "private"}


def _main(name: str, description: str) -> str:
    return f"---\nname: {name}\ndescription: {description}\n---\n\nRead the files beside this one when you need them.\n"


FILES: Final = {
    "skill://pdf-processing/SKILL.md": _main("pdf-processing", "Extract, fill and join PDF documents"),
    "skill://pdf-processing/references/FORMS.md": "# Forms\n",
    "skill://pdf-processing/templates/invoice.md": "# Invoice\n",
    "skill://pdf-processing/templates/regional/eu.md": "# Rechnung – facture\n",
    "skill://pdf-processing/scan/SKILL.md": _main("scan", "Read text in scanned pages"),
    "skill://acme/billing/refunds/SKILL.md": _main("refunds", "Process refunds"),
    "skill://acme/billing/refunds/email.md": "Dear customer\n",
    "skill://drafts/SKILL.md": _main("drafts", "Not for everybody yet"),
    "skill://today/SKILL.md": _main("today", "Say what day it is"),
}
DYNAMIC: Final = ("skill://today/SKILL.md",)
UNLISTED: Final = "skill://drafts/SKILL.md"
MAINS: Final = [uri for uri in FILES if uri.endswith("/SKILL.md")]
LISTED: Final = [uri for uri in MAINS if uri != UNLISTED]
PAGE: Final = 2
"""Skills on a page."""


def _frontmatter(uri: str) -> dict[str, str]:
    head = FILES[uri].split("---\n")[1]
    return dict(line.split(": ", 1) for line in head.splitlines())


def resources() -> list[Result]:
    """The main file of each listed skill, as a resource."""
    return [{"uri": uri, "mimeType": "text/markdown", **_frontmatter(uri)} for uri in LISTED]


def entry(uri: str) -> Result:
    """One skill, as it is listed."""
    folder = uri.removesuffix("SKILL.md")
    files = [_file(own) for own in FILES if own.startswith(folder)]
    return {"uri": uri, "frontmatter": _frontmatter(uri), "resources": "dynamic" if uri in DYNAMIC else files}


def _file(uri: str) -> Result:
    raw = FILES[uri].encode()
    return {"uri": uri, "digest": f"sha256:{sha256(raw).hexdigest()}", "size": len(raw)}


async def list_skills(context: Context, params: types.PaginatedRequestParams) -> Result:
    """A page of the skills."""
    start = int(params.cursor or 0)
    shown = LISTED[start : start + PAGE]
    more = {"nextCursor": str(start + PAGE)} if start + PAGE < len(LISTED) else {}
    return {"skills": list(map(entry, shown)), **more, **_CACHING}


async def get_skill(context: Context, params: types.ReadResourceRequestParams) -> Result:
    """One skill. Raises: `MCPError` -32602 for an unknown one."""
    if (uri := str(params.uri)) not in MAINS:
        raise MCPError(types.INVALID_PARAMS, "Skill not found", {"uri": uri})
    return {"skill": entry(uri), **_CACHING}


async def read_directory(context: Context, params: types.ReadResourceRequestParams) -> Result:
    """What is directly in a folder. Raises: `MCPError` -32602 for anything that is not one."""
    folder = f"{params.uri}/"
    inside = [uri.removeprefix(folder).partition("/") for uri in FILES if uri.startswith(folder)]
    if not inside:
        raise MCPError(types.INVALID_PARAMS, "Not a directory", {"uri": str(params.uri)})
    kinds = {name: "inode/directory" if slash else "text/markdown" for name, slash, _ in inside}
    return {"resources": [{"uri": folder + name, "name": name, "mimeType": kind} for name, kind in kinds.items()]}
