"""FastMCP's own proxy of a configuration, as its documentation shows it; needs a Python that has fastmcp."""

import argparse
import json
from pathlib import Path

from fastmcp.server import create_proxy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="JSON with `mcpServers`")
    parser.add_argument("--http", type=int, metavar="PORT", help="serve HTTP on this port of 127.0.0.1")
    options = parser.parse_args()
    servers = json.loads(options.config.read_text())["mcpServers"]
    proxy = create_proxy({"mcpServers": servers}, name="bench-fastmcp")
    if options.http is None:
        proxy.run(show_banner=False)
    else:
        log = {"access_log": False, "log_level": "error"}
        proxy.run("http", show_banner=False, port=options.http, uvicorn_config=log)


if __name__ == "__main__":
    main()
