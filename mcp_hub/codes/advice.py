"""A row of the tables of codes, and a table of them."""

import shlex
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Advice(NamedTuple):
    """The meaning of a code and the advice for it, in which SERVER stands for the name of a server."""

    meaning: str
    fix: str

    def fix_of(self, server: str) -> str:
        """The advice with the name of this server, as a shell takes it."""
        return self.fix.replace(" SERVER`", f" {shlex.quote(server)}`")


def table(**rows: tuple[str, str]) -> Mapping[str, Advice]:
    """A table that nobody changes."""
    return MappingProxyType({code: Advice(*row) for code, row in rows.items()})
