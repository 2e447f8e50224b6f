"""One run of one case: its folder, how much it does, and the figures that it reports."""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rigs.attach.place import Place


@dataclass
class Trial:
    """`is_short` asks for the form that `make test` has time for."""

    folder: Path
    is_short: bool = False
    figures: list[str] = field(default_factory=list)
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def place(
        self, *, servers: Iterable[str] = ("a", "b"), hub: Mapping[str, Any] | None = None, **more: object
    ) -> Place:
        """A new world."""
        root = self.folder / f"p{next(self._numbers)}"
        root.mkdir(mode=0o700)
        return Place(root, servers=servers, hub=hub, **more)

    def many(self, short: int, full: int) -> int:
        return short if self.is_short else full
