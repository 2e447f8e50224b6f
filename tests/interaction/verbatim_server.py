"""The fixture server, listing and answering what a test spells out: JSON text that goes out byte for byte.

`verbatim_server.py LISTS [options of the fixture]`: LISTS is a JSON file with texts of definitions by kind, `$NAME`
being the server's name. A request whose `_meta` has the key `ANSWER` (`REFUSE`) is answered by that result (error).
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ANSWER = "example.org/answer"
REFUSE = "example.org/refuse"
LISTS = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}
ANSWERED = ("tools/call", "prompts/get", "resources/read", "completion/complete")


def main() -> None:
    sys.path[0] = str(Path(__file__).parents[2])
    # only there once the path is set
    from tests.upstreams import methods, server
    from tests.upstreams.wire import Raw

    lists: dict[str, list[str]] = json.loads(Path(sys.argv.pop(1)).read_text("utf-8"))

    def listed(method: str, own: Callable[..., Any]) -> Callable[..., Any]:
        def run(session: Any, request: Any) -> Any:
            result = own(session, request)
            texts = (text.replace("$NAME", session.instance.name) for text in lists[LISTS[method]])
            # a line break would end the message on stdio
            is_line = session.options.http is None
            result[LISTS[method]] += [Raw(text.replace("\n", " ") if is_line else text) for text in texts]
            return result

        return run

    def answered(own: Callable[..., Any]) -> Callable[..., Any]:
        def run(session: Any, request: Any) -> Any:
            if REFUSE in request.meta:
                session.fail(request, Raw(request.meta[REFUSE]))
                return None
            return Raw(request.meta[ANSWER]) if ANSWER in request.meta else own(session, request)

        return run

    for method in LISTS:
        methods.METHODS[method] = listed(method, methods.METHODS[method])
    for method in ANSWERED:
        methods.METHODS[method] = answered(methods.METHODS[method])
    server.main()


if __name__ == "__main__":
    main()
