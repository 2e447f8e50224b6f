"""The server of the HTTP front: uvicorn without its signals, logs and limits, which are the hub's own."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn


class HttpServer(uvicorn.Server):
    """A server that leaves the signals to us: uvicorn would raise them again after its shutdown."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Takes none."""
        yield

    def end(self) -> None:
        """Accepts nothing more, and ends when what it serves has ended, within a second."""
        self.should_exit = True


def http_server(endpoints: Any, protocol: type[Any]) -> HttpServer:
    """A server of an ASGI application, not yet running; `protocol` is that of its connections."""
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
