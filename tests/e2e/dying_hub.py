"""The `mcp-hub` command with a file that kills it in the middle of a write: `$DIES_AT` is which state of a call it is.

Its events are written by then, the state is not.
"""

import os
import signal
from sqlite3 import Connection
from typing import Any, cast

from mcp_hub.__main__ import main
from mcp_hub.stores.sqlite import writes


class _Dying:
    """A connection on which that statement is never reached."""

    states = 0

    def __init__(self, db: Connection) -> None:
        self._db = db

    def execute(self, statement: str, *values: Any) -> Any:
        if statement == writes._EXTRA:
            _Dying.states += 1
            if _Dying.states == int(os.environ["DIES_AT"]):
                os.kill(os.getpid(), signal.SIGKILL)
        return self._db.execute(statement, *values)


_grow = writes._grow


def _dies(db: Connection, *rest: Any) -> None:
    _grow(cast(Connection, _Dying(db)), *rest)


if __name__ == "__main__":
    writes._grow = _dies  # type: ignore[assignment]  # the same, of whatever it is called with
    main()
