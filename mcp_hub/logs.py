"""Logging to stderr, as text on terminals and JSON elsewhere; masked and escaped.

A command calls `configure`; a host program uses the standard library's loggers below `mcp_hub`.
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
    """Whether a command owns the process, and other takers of events."""

    def __init__(self) -> None:
        self.is_command = False
        self.takes: list[Callable[[Mapping[str, object]], None]] = []


_owner: Final = _Owner()


class _HubLogger:
    """The logger of one module."""

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
        """`debug`, `info`, `warning`, `error` or `exception`."""
        bound: Callable[..., None] = getattr(self._of_command if _owner.is_command else self._of_host, method)
        return bound


def get_logger(name: str) -> _HubLogger:
    return _HubLogger(name)


def own_process() -> None:
    """Marks the process as a command: its loggers are structlog's."""
    _owner.is_command = True


@contextmanager
def teed(take: Callable[[Mapping[str, object]], None]) -> Iterator[None]:
    """Hands a command's events from level info to `take`, unmasked."""
    _owner.takes.append(take)
    try:
        yield
    finally:
        _owner.takes.remove(take)


class _Logger(structlog.PrintLogger):
    """Prints to stderr; drops lines that cannot be written."""

    def msg(self, message: str) -> None:
        try:
            super().msg(message)
        except OSError:
            pass

    log = debug = info = warn = warning = fatal = failure = err = error = critical = exception = msg


def configure(level: str, style: str, sentences: Mapping[str, str] = NOTHING) -> None:
    """Configures a command's logging. `level`: debug, info, warning, error; `style`: auto, json, console.

    `sentences` replace these events on a console; `{key}` stands for a value.
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
    event.pop("audit", None)  # for the audit alone: its kind, or that and a principal
    return event


def _from(number: int) -> structlog.typing.Processor:
    levels = logging.getLevelNamesMapping()

    def filtered(
        logger: structlog.typing.WrappedLogger, name: str, event: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        if levels[event["level"].upper()] < number:
            raise structlog.DropEvent
        return event

    return filtered


def _mask_values(
    logger: structlog.typing.WrappedLogger, name: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    return {key: hide_within(value) for key, value in event.items()}


def _as_text(
    logger: structlog.typing.WrappedLogger, name: str, event: structlog.typing.EventDict
) -> tuple[tuple[str, str], dict[str, object]]:
    """Arguments for a standard logger; a traceback comes last."""
    event.pop("audit", None)
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
    return hide(repr(value))


def _in_sentences(render: structlog.typing.Processor, sentences: Mapping[str, str]) -> structlog.typing.Processor:
    def rendered(logger: structlog.typing.WrappedLogger, name: str, event: structlog.typing.EventDict) -> Rendered:
        sentence = sentences.get(str(event.get("event")))
        return render(logger, name, event) if sentence is None else sentence.format_map(event)

    return rendered if sentences else render


def _masked(render: structlog.typing.Processor) -> structlog.typing.Processor:
    def masked(logger: structlog.typing.WrappedLogger, name: str, event: structlog.typing.EventDict) -> str:
        return hide(str(render(logger, name, event)))

    return masked


def _last_words(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    sys.stderr.write(visible(hide("".join(traceback.format_exception(kind, error, trace)))))


class _Formatter(logging.Formatter):
    """Masks records of the standard library, tracebacks included."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(hide(super().format(record)))
