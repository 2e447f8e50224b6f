"""How many examples a property is tried with: all of them in `make proof`, a quarter in `make test`."""

import os

_FULL = os.environ.get("PROOF") == "1"


def examples(count: int) -> int:
    return count if _FULL else max(10, count // 4)
