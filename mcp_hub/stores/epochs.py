"""Epochs of executors, which keep growing across restarts of the hub."""

import hashlib
from typing import Final

import msgspec

from mcp_hub.clock import wall_time
from mcp_hub.logs import get_logger
from mcp_hub.stores.keyed_files import KeyedFiles

log = get_logger(__name__)

_MOST: Final = 4096
"""Stored executors; a new one starts above the highest epoch of all removed ones."""
_HIGHEST: Final = 1 << 53
"""Above all that the clock gives, which other programs still count exactly."""
_FILE: Final = "epochs"


class _Record(msgspec.Struct):
    floor: int = 0
    epochs: dict[str, int] = {}


class Epochs:
    """Counts registrations of each principal's executors, in a file shared by hubs."""

    def __init__(self, files: KeyedFiles, limit: int = _MOST) -> None:
        self._files = files
        self._limit = limit

    def __call__(self, principal: str, executor_id: str, before: int) -> int:
        """The next epoch, above `before`; by the clock if the file fails."""
        name = hashlib.blake2b(msgspec.json.encode([principal, executor_id]), digest_size=16).hexdigest()
        epoch = 0

        def change(text: bytes | None) -> bytes:
            nonlocal epoch
            record = _read(text)
            epoch = max(record.epochs.pop(name, record.floor), before) + 1
            record.epochs[name] = epoch
            while len(record.epochs) > self._limit:
                record.floor = max(record.floor, record.epochs.pop(next(iter(record.epochs))))
            return msgspec.json.encode(record)

        try:
            self._files.update(_FILE, change)
        except OSError as problem:
            log.warning("epoch_not_kept", file=str(self._files.path(_FILE)), reason=str(problem))
            epoch = max(before, _now()) + 1
        return epoch


def _read(text: bytes | None) -> _Record:
    """A damaged file counts as lost; the clock is above its epochs."""
    try:
        record = _Record() if text is None else msgspec.json.decode(text, type=_Record)
    except (ValueError, RecursionError):  # msgspec's errors are of the former
        record = _Record(-1)
    is_sound = all(0 <= epoch < _HIGHEST for epoch in (record.floor, *record.epochs.values()))
    if not is_sound:
        log.warning("epochs_damaged", reason="not a record of epochs; the next ones follow the clock")
    return record if is_sound else _Record(_now())


def _now() -> int:
    return int(wall_time() * 1000)
