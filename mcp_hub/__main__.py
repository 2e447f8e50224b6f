"""`python -m mcp_hub` is the `mcp-hub` command."""

from mcp_hub.cli import main

if __name__ == "__main__":
    main()
