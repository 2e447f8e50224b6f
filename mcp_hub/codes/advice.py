"""The form of the tables."""

import shlex
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Advice(NamedTuple):
    """A meaning and a fix, with SERVER for the server's name."""

    meaning: str
    fix: str

    def fix_of(self, server: str) -> str:
        """The fix for this server, quoted for a shell."""
        return self.fix.replace(" SERVER`", f" {shlex.quote(server)}`")


def table(**rows: tuple[str, str]) -> Mapping[str, Advice]:
    return MappingProxyType({code: Advice(*row) for code, row in rows.items()})
