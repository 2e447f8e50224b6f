"""A hub's hold of a login, in a process of its own: `python -m tests.unit.upstreams.renewing FOLDER URL`.

Says "ready", waits for a line, then prints the token that it would send.
"""

import sys
from pathlib import Path

import anyio

from mcp_hub import logs
from mcp_hub.upstreams.auth.access import Access
from mcp_hub.upstreams.auth.grants import ClientRegistration, GrantStore


async def main(folder: str, url: str) -> None:
    access = Access("far", url, ClientRegistration(), GrantStore(Path(folder)))
    await access.reread()
    print("ready", flush=True)
    sys.stdin.readline()
    print(await access.token(), flush=True)


if __name__ == "__main__":
    logs.configure("error", "json")
    anyio.run(main, sys.argv[1], sys.argv[2])
