"""Logging: structlog to stderr, console on a terminal and JSON elsewhere; stdout belongs to the protocol."""

import logging
import sys

import structlog

__all__ = ["configure"]


class _Logger(structlog.PrintLogger):
    """Prints to stderr as long as somebody reads it: a client that was killed leaves a hub without, which has to end.

    What cannot be written is dropped.
    """

    def msg(self, message: str) -> None:
        try:
            super().msg(message)
        except OSError:
            pass

    log = debug = info = warn = warning = fatal = failure = err = error = critical = exception = msg


def configure(level: str, style: str) -> None:
    """`level` is one of debug, info, warning, error; `style` one of auto, json, console."""
    number = logging.getLevelNamesMapping()[level.upper()]
    console = style == "console" or (style == "auto" and sys.stderr.isatty())
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(
            # plain: the rich ones show local variables, arguments and secrets among them
            colors=sys.stderr.isatty(),
            exception_formatter=structlog.dev.plain_traceback,
        )
        if console
        else structlog.processors.JSONRenderer()
    )
    processors: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    if not console:
        processors.append(structlog.processors.format_exc_info)
    structlog.configure(
        processors=[*processors, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=lambda *args: _Logger(sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=max(number, logging.WARNING), stream=sys.stderr, format="%(name)s: %(message)s")
