"""What several commands take; anything else is a usage error."""

import math
from collections.abc import Callable
from typing import Any

import click

__all__ = ["Seconds", "stream_argument"]


class Seconds(click.FloatRange):
    """A finite number within bounds: NaN is within all of them."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """As click asks for it; refuses infinity and NaN."""
        seconds = float(super().convert(value, param, ctx))
        if not math.isfinite(seconds):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return seconds


def _named(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if not value.strip():  # a variable that is not set, most often
        raise click.BadParameter("the id of a stream is missing; mcp-hub streams lists them.")
    return value


stream_argument: Callable[[Any], Any] = click.argument("stream", callback=_named)
