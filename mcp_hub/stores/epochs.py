"""Epochs of executors, which keep growing across restarts of the hub."""

import hashlib
from typing import Final

import msgspec

from mcp_hub.clock import wall_time
from mcp_hub.logs import get_logger
from mcp_hub.stores.keyed_files import KeyedFiles

log = get_logger(__name__)

_MOST: Final = 4096
"""Executors whose epochs are kept; of those that go, every new one starts above the highest."""
_HIGHEST: Final = 1 << 53
"""Above all that the clock gives, which other programs still count exactly."""
_FILE: Final = "epochs"


class _Kept(msgspec.Struct):
    floor: int = 0
    epochs: dict[str, int] = {}


class Epochs:
    """Counts registrations of each principal's executors, in a file shared by hubs."""

    def __init__(self, files: KeyedFiles, most: int = _MOST) -> None:
        self._files = files
        self._most = most

    def __call__(self, principal: str, executor_id: str, before: int) -> int:
        """The next epoch, above `before`; by the clock if the file fails."""
        name = hashlib.blake2b(msgspec.json.encode([principal, executor_id]), digest_size=16).hexdigest()
        found = 0

        def change(text: bytes | None) -> bytes:
            nonlocal found
            kept = _read(text)
            found = max(kept.epochs.pop(name, kept.floor), before) + 1
            kept.epochs[name] = found
            while len(kept.epochs) > self._most:
                kept.floor = max(kept.floor, kept.epochs.pop(next(iter(kept.epochs))))
            return msgspec.json.encode(kept)

        try:
            self._files.update(_FILE, change)
        except OSError as problem:
            log.warning("epoch_not_kept", file=str(self._files.place(_FILE)), reason=str(problem))
            found = max(before, _now()) + 1
        return found


def _read(text: bytes | None) -> _Kept:
    """A damaged file counts as lost; the clock is above its epochs."""
    try:
        kept = _Kept() if text is None else msgspec.json.decode(text, type=_Kept)
    except (ValueError, RecursionError):  # msgspec's errors are of the former
        kept = _Kept(-1)
    is_sound = all(0 <= epoch < _HIGHEST for epoch in (kept.floor, *kept.epochs.values()))
    if not is_sound:
        log.warning("epochs_damaged", reason="not a record of epochs; the next ones follow the clock")
    return kept if is_sound else _Kept(_now())


def _now() -> int:
    return int(wall_time() * 1000)
