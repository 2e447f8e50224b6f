"""The server of a hub over HTTP: uvicorn without its signals, logs and limits."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn


class HttpServer(uvicorn.Server):
    """A server without signal handlers: uvicorn would raise the signals again."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def end(self) -> None:
        """Accepts nothing more, ends within a second."""
        self.should_exit = True


def http_server(endpoints: Any, protocol: type[Any]) -> HttpServer:
    return HttpServer(
        uvicorn.Config(
            endpoints,
            interface="asgi3",  # uvicorn takes a partial for an application of ASGI 2
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            ws="none",
            http=protocol,
            timeout_graceful_shutdown=1,
            timeout_keep_alive=75,
        )
    )
