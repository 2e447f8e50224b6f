"""A batch of calls as it is kept, and the interface of every store of them. Pure."""

import hashlib
import sys
from array import array
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, Literal, NamedTuple, Protocol

import msgspec

from mcp_hub.errors import StoreError

MASKED_ARGUMENTS: Final = 1
CUT_ARGUMENTS: Final = 2
MASKED_RESULT: Final = 4
CUT_RESULT: Final = 8
DURABLE: Final = 16
"""Flags of a call: the last one has a durable stream."""

Keeping = Literal["none", "hash", "full"]
"""The part of arguments and results that is kept."""
LossKind = Literal["killed", "dropped", "unwritten", "damaged", "cleared"]
MOST_LOSSES: Final = 100
"""Losses that are kept; the oldest goes first."""


_MOST_CALLS: Final = 1 << 16
"""Calls of a batch, which are numbered by 16 bits."""
_LAST: Final = 2.0**33
"""Unix seconds in the year 2242. Times and durations are below it."""
HIGHEST_NUMBER: Final = 1 << 46
"""The highest number of a batch in a file: with the place of a call behind it, it has 63 bits."""
SOUND_ROW: Final = (
    f"number BETWEEN 1 AND {HIGHEST_NUMBER} AND typeof(hub) = 'text' AND typeof(base) = 'integer' AND base >= 0"
    f" AND typeof(calls) = 'integer' AND calls BETWEEN 1 AND {_MOST_CALLS}"
    f" AND first >= 0 AND first < {_LAST} AND last >= 0 AND last < {_LAST}"
)
"""`is_sound_key` in SQL, for rows of a file with a number of the batch."""
_HIGHEST: Final = slice(7 if sys.byteorder == "little" else 0, None, 8)
_BELOW_LAST: Final = bytes(range(0x42))
"""The highest bytes of doubles from 0 to `_LAST`: neither negative ones nor NaN nor infinity have one of them."""
_LONGEST: Final = 4096
"""Characters of a text of a loss."""


class HistoryLimits(msgspec.Struct, frozen=True):
    """Bounds of a history: seconds, calls and bytes; the oldest batch goes first. One is open for `span` seconds."""

    keep: float = 7 * 86400.0
    calls: int = 100_000
    size: int = 64 << 20

    @property
    def span(self) -> float:
        return min(3600.0, self.keep / 16)

    @property
    def batch(self) -> int:
        """Calls after which a batch is closed."""
        return min(256, max(self.calls // 16, 1))


class CallGroup(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The texts that calls of one tool, client and outcome share.

    `tool` is the server's name for it, `name` the one that was called. `definition` is the digest of the tool's
    definition at that time, empty where it is unknown.
    """

    server: str
    tool: str
    name: str
    method: str
    principal: str
    client: str
    status: str
    kept: Keeping
    definition: str = ""


class BatchKey(msgspec.Struct, frozen=True, gc=False):
    """A batch of the hub `hub`, which had `base` calls before; when the first and the last of its calls ended."""

    hub: str
    base: int
    first: float
    last: float
    calls: int


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """Calls of one hub in the order of their endings: an entry of each column for each of them.

    `groups` are lines of JSON (`group_of`) and `marks` their numbers, `ids` are joined by spaces, `sizes` are bytes of
    arguments and of results, `notes` have a code and a message by the place of a call. Times are Unix seconds, `took`
    and `waited` seconds.
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
        ended = floats(self.ended)
        return BatchKey(hub=self.hub, base=self.base, first=ended[0], last=ended[-1], calls=len(ended))

    def extended(self, more: "Batch") -> "Batch":
        """This batch with the calls of another one behind its own."""
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
            waited=self.waited + more.waited,
            sizes=self.sizes + more.sizes,
            flags=self.flags + more.flags,
            notes=self.notes | {place + count: note for place, note in more.notes.items()},
        )


class CallTexts(NamedTuple):
    """The arguments and the beginning of the result of one call, masked; empty: not kept."""

    arguments: str = ""
    result: str = ""


class LostCalls(msgspec.Struct, frozen=True, omit_defaults=True):
    """Calls of a hub that are not in the history; `at` are Unix seconds, `reason` is for people.

    `killed`: the hub ended without notice after `at`. `dropped`: they came faster than they could be written.
    """

    kind: LossKind
    at: float
    hub: str = ""
    count: int = 0
    reason: str = ""


class RunningChange(msgspec.Struct, frozen=True):
    """Changes to the calls that run: those that have `begun`, each in a batch of its own, and those that have `ended`.

    A store shows such a batch once its hub is gone. Its `base` is the call's `running_number`, at every hub.
    """

    begun: Sequence[tuple[Batch, bytes]] = ()
    ended: Sequence[int] = ()


NO_CHANGE: Final = RunningChange()
RUNNING: Final = 1 << 52
"""Numbers from here on are those of running calls; no hub makes so many calls."""


def running_number(id_: str) -> int:
    """The number of the batch of a running call, below 2^53."""
    return RUNNING | int.from_bytes(hashlib.blake2b(id_.encode(), digest_size=8).digest()) % RUNNING


def is_shown(key: BatchKey, is_gone: Callable[[str], bool]) -> bool:
    """Whether the calls of a batch are past ones: they have ended, or their hub has."""
    return key.base < RUNNING or is_gone(key.hub)


class BatchRefused(StoreError):
    """The batch itself cannot be stored; the next ones may be."""


class HistoryStore(Protocol):
    """Keeps batches. Everything raises `StoreError` if that does not work now."""

    @property
    def place(self) -> str:
        """The path or the URL, for people."""

    async def write(
        self, batch: Batch, fresh: int, texts: bytes, losses: Sequence[LostCalls], limits: HistoryLimits,
        running: RunningChange = NO_CHANGE,
    ) -> bool:  # fmt: skip
        """Writes a batch whose last `fresh` calls are new, with their texts, if any. Raises `BatchRefused`, too.

        `texts` are arguments and results by turns, parted by NULs.

        False, and nothing is written, if the batch has calls that were there before and is gone.
        """

    async def index(self) -> list[BatchKey]:
        """All batches of past calls, in any order."""

    async def load(self, keys: Sequence[BatchKey]) -> list[Batch]:
        """Those of them that are still there."""

    async def texts(self, key: BatchKey, places: Sequence[int]) -> dict[int, CallTexts]:
        """The texts of the calls at these places of a batch, as far as they were kept."""

    async def losses(self) -> list[LostCalls]:
        """The newest first."""

    async def clear(self, loss: LostCalls) -> int:
        """Removes every call and every loss, and keeps this one instead; how many calls."""

    async def close(self) -> None:
        """Says that this hub has ended. Idempotent. Never raises."""


def floats(column: bytes) -> Sequence[float]:
    """The numbers of a column of times."""
    return memoryview(column).cast("d")


def numbers(column: bytes) -> Sequence[int]:
    """The numbers of the column `marks`."""
    return memoryview(column).cast("H")


def sizes(column: bytes) -> Sequence[int]:
    """The numbers of the column `sizes`: two for each call."""
    return memoryview(column).cast("I")


_encode_group = msgspec.json.Encoder().encode
_decode_group = msgspec.json.Decoder(CallGroup).decode
encode = msgspec.msgpack.Encoder().encode
_decode_batch = msgspec.msgpack.Decoder(Batch).decode


def group_line(group: CallGroup) -> str:
    """A group as a line of a batch."""
    return _encode_group(group).decode()


@lru_cache(maxsize=4096)
def group_of(line: str) -> CallGroup:
    """The group of a line; of one that is damaged, one without texts."""
    try:
        return _decode_group(line)
    except ValueError:
        return CallGroup(server="", tool="", name="", method="", principal="", client="", status="", kept="none")


def batch_of(encoded: object) -> Batch | None:
    """A batch that was encoded; None for something else, as other programs or a fault may leave it."""
    try:
        batch = _decode_batch(encoded) if isinstance(encoded, bytes) else None
        return batch if batch is not None and _is_sound(batch) else None
    except (ValueError, TypeError):  # of columns that have no whole numbers, too
        return None


def is_sound_key(key: BatchKey) -> bool:
    """Whether a record can be that of a batch: others may have written it, or a fault."""
    numbers_, times = (key.base, key.calls), (key.first, key.last)
    return (
        isinstance(key.hub, str)
        and all(isinstance(number, int) for number in numbers_)
        and key.base >= 0
        and 0 < key.calls <= _MOST_CALLS
        and all(map(is_moment, times))
    )


def is_sound_loss(loss: LostCalls) -> bool:
    """Whether a record can be that of a loss."""
    texts = all(isinstance(text, str) and len(text) <= _LONGEST for text in (loss.hub, loss.reason))
    return texts and is_moment(loss.at) and isinstance(loss.count, int) and loss.count >= 0


def is_moment(seconds: object) -> bool:
    """Whether a number can be a time of a call in Unix seconds: from 1970 to 2242."""
    return isinstance(seconds, float | int) and 0 <= seconds < _LAST


def texts_of_body(body: object) -> list[CallTexts]:
    """The texts of each call of one writing; none of something else."""
    fields = body.decode("utf-8", "replace").split("\0") if isinstance(body, bytes) else []
    return [CallTexts(*fields[at : at + 2]) for at in range(0, len(fields) - 1, 2)]


def _is_sound(batch: Batch) -> bool:
    """Whether the columns of a batch fit each other."""
    count, times = len(batch), (batch.ended, batch.took, batch.waited)
    columns = (len(batch.marks) // 2, len(batch.ended) // 8, len(batch.took) // 8, len(batch.waited) // 8)
    return (
        count > 0
        and all(length == count for length in (*columns, len(batch.sizes) // 8, len(batch.ids.split(" "))))
        and max(numbers(batch.marks)) <= batch.groups.count("\n")
        and not any(column[_HIGHEST].translate(None, _BELOW_LAST) for column in times)
        and batch.base >= 0
    )
