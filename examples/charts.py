"""An MCP server whose tool answers with an image, written with the Python SDK (`pip install mcp`)."""

import struct
import zlib

from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

SCALE = 16
"""Pixels for one unit, and for the width of a bar."""

server = MCPServer("charts", log_level="WARNING")


def png(rows: list[bytes]) -> bytes:
    """Rows of grey pixels, one byte each, as a PNG file."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


@server.tool()
def draw_bars(values: list[int]) -> Image:
    """Draw a bar chart of up to 50 numbers from 0 to 50."""
    if not 0 < len(values) <= 50 or not all(0 <= value <= 50 for value in values):
        raise ToolError("Give 1 to 50 numbers from 0 to 50.")
    levels = range(max(*values, 1), 0, -1)
    rows = [b"".join((b"\x20" if value >= level else b"\xff") * SCALE for value in values) for level in levels]
    return Image(data=png([row for row in rows for _ in range(SCALE)]), format="png")


if __name__ == "__main__":
    server.run()
