"""The fixture server with lists that a file spells out.

`listing_server.py LISTS [options of the fixture]`: LISTS is a JSON file with the texts of definitions by kind. Without
a cursor a list has all of them; with the cursor N it has the Nth alone.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def main() -> None:
    sys.path[0] = str(Path(__file__).parents[2])
    # only there once the path is set
    from mcp_hub.protocol.capabilities import KINDS
    from tests.upstreams import methods, server
    from tests.upstreams.wire import Raw

    lists: dict[str, list[str]] = json.loads(Path(sys.argv.pop(1)).read_text("utf-8"))

    def listed(key: str, texts: list[str]) -> Callable[..., Any]:
        def run(session: Any, request: Any) -> Any:
            cursor = request.params.get("cursor")
            return {key: [Raw(text) for text in (texts if cursor is None else [texts[int(cursor)]])]}

        return run

    for spec in KINDS.values():
        if spec.result_key in lists:
            methods.METHODS[spec.list_method] = listed(spec.result_key, lists[spec.result_key])
    server.main()


if __name__ == "__main__":
    main()
