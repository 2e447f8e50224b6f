"""A server made with FastMCP, in its own Python: `fastmcp_skills.py FOLDER PORT` serves the skills in a folder."""

import sys

from fastmcp import FastMCP
from fastmcp.skills.provider import SkillsDirectoryProvider

server = FastMCP("skills", providers=[SkillsDirectoryProvider(roots=sys.argv[1])])


def today() -> str:
    """The day."""
    return "Monday"


server.tool(today)


if __name__ == "__main__":
    server.run(transport="http", host="127.0.0.1", port=int(sys.argv[2]), show_banner=False)
