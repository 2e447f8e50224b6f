"""How many examples a property gets: all in `make proof`, a quarter in `make test`, a tenth in `make test-fast`.

`$EXAMPLES` is `all` or `few` there.
"""

import os
from typing import Final

_SHARE: Final = {"all": 1, "few": 10}.get(os.environ.get("EXAMPLES", ""), 4)


def examples(count: int) -> int:
    """So many of `count`, but never fewer than a handful."""
    return count if _SHARE == 1 else max(40 // _SHARE, count // _SHARE)


def some(places: range, shift: int = 0) -> range:
    """All of them in `make proof`, or every fourth or tenth, of which `shift` says where they begin."""
    return places[shift % _SHARE :: _SHARE]
