"""The stored form of a batch of calls, and its stores' interface. Pure."""

import hashlib
import re
import sys
from array import array
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, Literal, Protocol, TypeVar

import msgspec

MASKED_ARGUMENTS: Final = 1
CUT_ARGUMENTS: Final = 2
MASKED_RESULT: Final = 4
CUT_RESULT: Final = 8
DURABLE: Final = 16
COMPLETED: Final = 32
"""Flags of a call. `DURABLE`: with a durable stream. `COMPLETED`: not a failure; calls without it may be failures."""

Keeping = Literal["none", "hash", "full"]
"""The part of arguments and results that is kept."""
LossKind = Literal["killed", "dropped", "unwritten", "damaged", "cleared"]
MOST_LOSSES: Final = 100
"""Losses that are kept; the oldest goes first."""


T = TypeVar("T")
_MOST_CALLS: Final = 1 << 16
"""Calls of a batch, which are numbered by 16 bits."""
_HIGHEST_BASE: Final = (1 << 53) - 1
"""Each number of a call fits into a number of JSON."""
_HUB: Final = re.compile(r"in_[0-9A-Za-z_-]{1,64}")
"""The id of a hub."""
_LAST: Final = 2.0**33
"""Unix seconds in the year 2242. Times and durations are below it."""
HIGHEST_NUMBER: Final = 1 << 46
"""The highest number of a batch in a file: with the place of a call behind it, it has 63 bits."""
SOUND_ROW: Final = (
    f"number BETWEEN 1 AND {HIGHEST_NUMBER} AND typeof(hub) = 'text' AND hub GLOB 'in_?*' AND length(hub) < 68"
    " AND hub NOT GLOB '*[^0-9A-Za-z_-]*'"
    f" AND typeof(base) = 'integer' AND base BETWEEN 0 AND {_HIGHEST_BASE}"
    f" AND typeof(calls) = 'integer' AND calls BETWEEN 1 AND {_MOST_CALLS}"
    f" AND first >= 0 AND first < {_LAST} AND last >= 0 AND last < {_LAST}"
)
"""`is_sound_key` in SQL, for rows of a file with a number of the batch."""
_HIGHEST: Final = slice(7 if sys.byteorder == "little" else 0, None, 8)
_BELOW_LAST: Final = bytes(range(0x42))
"""The highest bytes of doubles from 0 to `_LAST`: neither negative ones nor NaN nor infinity have one of them."""
_WAITED: Final = array("d").itemsize
_SIZES: Final = 2 * array("I").itemsize
"""Bytes of a call in the columns that may be left out."""
_LONGEST: Final = 4096
"""Characters of a text of a loss."""


class HistoryLimits(msgspec.Struct, frozen=True):
    """Limits in seconds, calls and bytes; the oldest batch goes first. A batch is open for `span` seconds."""

    keep: float = 7 * 86400.0
    calls: int = 100_000
    size: int = 64 << 20

    @property
    def span(self) -> float:
        return min(3600.0, self.keep / 16)

    @property
    def batch(self) -> int:
        return min(512, max(self.calls // 16, 1))

    def is_open(self, key: "BatchKey", texts: int) -> bool:
        """Whether a batch with so many bytes of texts still grows."""
        return key.calls < self.batch and key.last - key.first < self.span and texts < self.size // 16


class CallGroup(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Texts shared by calls of one tool, client and outcome.

    `tool` is the server's name, `name` the called one, `definition` a digest of the tool's or empty, `parent` the run
    of the script that made them.
    """

    server: str
    tool: str
    name: str
    method: str
    principal: str
    client: str
    status: str
    keeping: Keeping
    definition: str = ""
    parent: str = ""


class BatchKey(msgspec.Struct, frozen=True, gc=False):
    """A batch of `hub`, after its `base` earlier calls; `first` and `last` are end times."""

    hub: str
    base: int
    first: float
    last: float
    calls: int


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """Calls of one hub in columns, in order of their end.

    `groups` are lines of JSON, `marks` each call's group, `ids` joined by spaces, `sizes` bytes of arguments and
    results, `notes` (code, message) by index. Times are Unix seconds, `took` and `waited` seconds. `waited` and `sizes`
    are empty if all are 0.
    """

    hub: str
    base: int
    groups: str = ""
    marks: bytes = b""
    ids: str = ""
    ended: bytes = b""
    took: bytes = b""
    waited: bytes = b""
    sizes: bytes = b""
    flags: bytes = b""
    notes: dict[int, tuple[str, str]] = {}

    def __len__(self) -> int:
        return len(self.flags)

    @property
    def key(self) -> BatchKey:
        """The key of its row."""
        ended = floats(self.ended)
        return BatchKey(hub=self.hub, base=self.base, first=ended[0], last=ended[-1], calls=len(ended))

    def extended(self, more: "Batch") -> "Batch":
        """This batch with the calls of `more`."""
        count, groups = len(self), {group: number for number, group in enumerate(self.groups.split("\n"))}
        places = [groups.setdefault(group, len(groups)) for group in more.groups.split("\n")]
        marks = array("H", (places[mark] for mark in numbers(more.marks)))
        return Batch(
            hub=self.hub,
            base=self.base,
            groups="\n".join(groups),
            marks=self.marks + marks.tobytes(),
            ids=f"{self.ids} {more.ids}",
            ended=self.ended + more.ended,
            took=self.took + more.took,
            waited=_joined(self.waited, more.waited, _WAITED * count, _WAITED * len(more)),
            sizes=_joined(self.sizes, more.sizes, _SIZES * count, _SIZES * len(more)),
            flags=self.flags + more.flags,
            notes=self.notes | {index + count: note for index, note in more.notes.items()},
        )


CallTexts = tuple[str, str]
"""Masked arguments and start of the result; empty if not stored."""


class LostCalls(msgspec.Struct, frozen=True, omit_defaults=True):
    """Calls missing from the history; `at` is in Unix seconds.

    `killed`: the hub ended without notice after `at`. `dropped`: too fast to be written.
    """

    kind: LossKind
    at: float
    hub: str = ""
    count: int = 0
    reason: str = ""


RunningChange = tuple[Sequence[tuple[Batch, bytes]], Sequence[int]]
"""Running calls that have begun, each in its own batch with texts, and the numbers of those that have ended.

Such a batch is shown once its hub is gone; its `base` is the call's `running_number`.
"""
NO_CHANGE: Final[RunningChange] = (), ()
RUNNING: Final = 1 << 52
"""Numbers from here on are those of running calls; no hub makes so many calls."""


def running_number(id_: str) -> int:
    """The `base` of a running call's batch, below 2^53."""
    return RUNNING | int.from_bytes(hashlib.blake2b(id_.encode(), digest_size=8).digest()) % RUNNING


def is_shown(key: BatchKey, is_gone: Callable[[str], bool]) -> bool:
    """Whether its calls, or their hub, have ended."""
    return key.base < RUNNING or is_gone(key.hub)


class HistoryStore(Protocol):
    """Stores batches. All methods raise `StoreError`."""

    @property
    def location(self) -> str:
        """Path or URL, for display."""

    async def write(
        self, batch: Batch, fresh: int, texts: bytes, losses: Sequence[LostCalls], limits: HistoryLimits,
        running: RunningChange = NO_CHANGE,
    ) -> bool:  # fmt: skip
        """Writes a batch with `fresh` new calls at its end. A `StoreError` is about it alone, but for an outage.

        `texts` are alternating arguments and results, separated by NUL. False, with nothing written, if the batch
        continues a deleted one.
        """

    async def index(self) -> list[BatchKey]:
        """Batches of past calls, unordered."""

    async def scan(self, keys: Sequence[BatchKey], extract: Callable[[Batch], T]) -> list[T]:
        """The results of `extract`, which runs in a thread, for each batch that still exists."""

    async def texts(self, key: BatchKey, indexes: Sequence[int]) -> dict[int, CallTexts]:
        """Stored texts by index of the call."""

    async def losses(self) -> list[LostCalls]:
        """Newest first."""

    async def clear(self, loss: LostCalls) -> int:
        """Replaces calls and losses by `loss`; the number of calls."""

    async def close(self, *, is_complete: bool = True) -> None:
        """Marks this hub as ended, unless calls of it are missing. Idempotent. Never raises."""


def _joined(column: bytes, more: bytes, size: int, more_size: int) -> bytes:
    return (column or bytes(size)) + (more or bytes(more_size)) if column or more else b""


def floats(column: bytes) -> Sequence[float]:
    return memoryview(column).cast("d")


def numbers(column: bytes) -> Sequence[int]:
    return memoryview(column).cast("H")


def sizes(column: bytes) -> Sequence[int]:
    """Two numbers for each call."""
    return memoryview(column).cast("I")


_encode_group = msgspec.json.Encoder().encode
_decode_group = msgspec.json.Decoder(CallGroup).decode
encode = msgspec.msgpack.Encoder().encode
_decode_batch = msgspec.msgpack.Decoder(Batch).decode


def group_line(group: CallGroup) -> str:
    return _encode_group(group).decode()


@lru_cache(maxsize=4096)
def group_of(line: str) -> CallGroup:
    """An empty group for a damaged line."""
    try:
        return _decode_group(line)
    except ValueError:
        return CallGroup(server="", tool="", name="", method="", principal="", client="", status="", keeping="none")


def batch_of(encoded: object) -> Batch | None:
    """None if invalid."""
    try:
        batch = _decode_batch(encoded) if isinstance(encoded, bytes) else None
        return batch if batch is not None and _is_sound(batch) else None
    except (ValueError, TypeError):  # of columns that have no whole numbers, too
        return None


def is_sound_key(key: BatchKey) -> bool:
    """Whether a stored key is valid."""
    numbers_, times = (key.base, key.calls), (key.first, key.last)
    return (
        isinstance(key.hub, str)
        and _HUB.fullmatch(key.hub) is not None
        and all(isinstance(number, int) for number in numbers_)
        and 0 <= key.base <= _HIGHEST_BASE
        and 0 < key.calls <= _MOST_CALLS
        and all(map(is_moment, times))
    )


def is_sound_loss(loss: LostCalls) -> bool:
    """Whether a stored loss is valid."""
    texts = all(isinstance(text, str) and len(text) <= _LONGEST for text in (loss.hub, loss.reason))
    return texts and is_moment(loss.at) and isinstance(loss.count, int) and loss.count >= 0


def is_moment(seconds: object) -> bool:
    """Whether this is a Unix time from 1970 to 2242."""
    return isinstance(seconds, float | int) and 0 <= seconds < _LAST


def texts_of_body(body: object, limit: int) -> list[CallTexts]:
    """Texts of each call in `texts` of one write of at most so many; none if it is damaged: they could be others'."""
    fields = body.decode("utf-8", "replace").split("\0") if isinstance(body, bytes) else []
    is_sound = len(fields) % 2 == 0 and len(fields) <= 2 * limit
    return list(zip(fields[0::2], fields[1::2], strict=True)) if is_sound else []


def _is_sound(batch: Batch) -> bool:
    count, waited, sizes_ = len(batch), len(batch.waited), len(batch.sizes)
    return (
        count > 0
        and 4 * len(batch.marks) == len(batch.ended) == len(batch.took) == 8 * count
        and waited in (0, 8 * count)
        and sizes_ in (0, 8 * count)
        and batch.ids.count(" ") + 1 == count
        and max(numbers(batch.marks)) <= batch.groups.count("\n")
        and not (batch.ended + batch.took + batch.waited)[_HIGHEST].translate(None, _BELOW_LAST)
        and batch.base >= 0
    )
