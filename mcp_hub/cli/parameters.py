"""Types and arguments that several commands share."""

import math
from collections.abc import Callable
from typing import Any

import click


class Seconds(click.FloatRange):
    """A finite number within bounds; without this class, NaN would be within all bounds."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number; refuses infinity and NaN."""
        seconds = float(super().convert(value, param, ctx))
        if not math.isfinite(seconds):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return seconds


def _named(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if not value.strip():  # a variable that is not set, most often
        raise click.BadParameter("The id of a stream is missing. mcp-hub streams lists them.")
    return value


output_option: Callable[[Any], Any] = click.option(
    "--output", type=click.Choice(["text", "json", "jsonl"]), help="Output format. Default: text, or jsonl with --json."
)
stream_argument: Callable[[Any], Any] = click.argument("stream", callback=_named)
