"""Logging: structlog to stderr, console on a terminal and JSON elsewhere; stdout belongs to the protocol.

A command owns its process and calls `configure`. In a host program nobody does: there the hub logs through the standard
library, by the logger of each module below `mcp_hub`, and the program decides what becomes of it.

Every line has passed `masking.hide`, those of libraries and tracebacks included. What a terminal would obey is spelled
out: servers write to the log, too.
"""

import io
import logging
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType, TracebackType
from typing import Final, TextIO

import structlog

from mcp_hub.masking import hide, hide_within, visible

NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


Rendered = Mapping[str, object] | str | bytes | bytearray | tuple[object, ...]
"""The result of a processor of structlog."""


class _Owner:
    """Whether this process is a command of the hub, whose loggers are structlog's, and who else gets its events."""

    def __init__(self) -> None:
        self.is_command = False
        self.takes: list[Callable[[Mapping[str, object]], None]] = []


_owner: Final = _Owner()


class HubLogger:
    """The logger of one module. Where its lines go is decided with each of them."""

    __slots__ = ("_of_command", "_of_host")

    def __init__(self, name: str) -> None:
        self._of_command = structlog.get_logger(name)
        self._of_host = structlog.wrap_logger(
            logging.getLogger(name),
            processors=[structlog.stdlib.filter_by_level, structlog.processors.format_exc_info, _mask_values, _as_text],
            wrapper_class=structlog.stdlib.BoundLogger,
            cache_logger_on_first_use=True,
        )

    def __getattr__(self, method: str) -> Callable[..., None]:
        """`debug`, `info`, `warning`, `error` or `exception`, called with an event and its keys."""
        bound: Callable[..., None] = getattr(self._of_command if _owner.is_command else self._of_host, method)
        return bound


def get_logger(name: str) -> HubLogger:
    """The logger for the module of that name."""
    return HubLogger(name)


def own_process() -> None:
    """From now on the hub's loggers are structlog's, configured or not: the process is not a host program's."""
    _owner.is_command = True


@contextmanager
def teed(take: Callable[[Mapping[str, object]], None]) -> Iterator[None]:
    """Hands the events of a command from level info on to `take`, too, whatever its level is. They are not masked."""
    _owner.takes.append(take)
    try:
        yield
    finally:
        _owner.takes.remove(take)


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


def configure(level: str, style: str, sentences: Mapping[str, str] = NOTHING) -> None:
    """`level` is one of debug, info, warning, error; `style` one of auto, json, console. Owns the process.

    `sentences`: on a console, the lines for people in place of these events, with `{key}` for the values.
    """
    own_process()
    number = logging.getLevelNamesMapping()[level.upper()]
    console = style == "console" or (style == "auto" and sys.stderr.isatty())
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(
            # plain: the rich ones show local variables, arguments and secrets among them
            colors=sys.stderr.isatty(),
            exception_formatter=_traceback,
        )
        if console
        else structlog.processors.JSONRenderer(default=_printed)
    )
    processors: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        _tee,
        _from(number),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    if not console:
        processors.append(structlog.processors.format_exc_info)
    structlog.configure(
        processors=[
            *processors,
            *((_spell_out, _masked(_in_sentences(renderer, sentences))) if console else (_mask_values, renderer)),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(min(number, logging.INFO)),
        logger_factory=lambda *args: _Logger(sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter("%(name)s: %(message)s"))
    logging.basicConfig(level=max(number, logging.WARNING), handlers=[handler])
    sys.excepthook = _last_words


def _tee(
    logger: structlog.typing.WrappedLogger, name: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    for take in _owner.takes:
        take(event)
    return event


def _from(number: int) -> structlog.typing.Processor:
    """Drops events below this level."""
    levels = logging.getLevelNamesMapping()

    def kept(
        logger: structlog.typing.WrappedLogger, name: str, event: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        if levels[event["level"].upper()] < number:
            raise structlog.DropEvent
        return event

    return kept


def _mask_values(
    logger: structlog.typing.WrappedLogger, name: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Masks every text of an event; numbers stay, so that it can still be JSON."""
    return {key: hide_within(value) for key, value in event.items()}


def _as_text(
    logger: structlog.typing.WrappedLogger, name: str, event: structlog.typing.EventDict
) -> tuple[tuple[str, str], dict[str, object]]:
    """The arguments for a logger of the standard library; a traceback stands at the end."""
    trace = event.pop("exception", None)
    text = " ".join([str(event.pop("event", "")), *(f"{key}={value!r}" for key, value in event.items())])
    # without exc_info, which `exception` of the standard library would add, and which would be shown unmasked
    return ("%s", visible(text if trace is None else f"{text}\n{trace}")), {"exc_info": False}


def _spell_out(
    logger: structlog.typing.WrappedLogger, name: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    return {key: visible(value) if isinstance(value, str) else value for key, value in event.items()}


def _traceback(out: TextIO, error: structlog.typing.ExcInfo) -> None:
    text = io.StringIO()
    structlog.dev.plain_traceback(text, error)
    out.write(visible(text.getvalue()))


def _printed(value: object) -> str:
    """The log form of a value that JSON does not have."""
    return hide(repr(value))


def _in_sentences(render: structlog.typing.Processor, sentences: Mapping[str, str]) -> structlog.typing.Processor:
    def rendered(logger: structlog.typing.WrappedLogger, name: str, event: structlog.typing.EventDict) -> Rendered:
        sentence = sentences.get(str(event.get("event")))
        return render(logger, name, event) if sentence is None else sentence.format_map(event)

    return rendered if sentences else render


def _masked(render: structlog.typing.Processor) -> structlog.typing.Processor:
    """The last processor of a console: masks what was rendered, tracebacks included."""

    def masked(logger: structlog.typing.WrappedLogger, name: str, event: structlog.typing.EventDict) -> str:
        return hide(str(render(logger, name, event)))

    return masked


def _last_words(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Masks the traceback of an error that ends the process."""
    sys.stderr.write(visible(hide("".join(traceback.format_exception(kind, error, trace)))))


class _Formatter(logging.Formatter):
    """Masks a record of the standard library's logging with its traceback."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(hide(super().format(record)))
