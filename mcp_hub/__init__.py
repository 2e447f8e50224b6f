"""mcp-hub: one MCP server in front of many.

docs/architecture.md draws how the packages below fit together and which may import which.
"""

__version__ = "0.1.0"
