"""Images, audio and other binary content of a result as files in a folder.

Names are made of the position of a block and its MIME type, so that no server chooses one. No file is overwritten.
"""

import binascii
import os
from base64 import b64decode
from collections.abc import Iterator, Sequence
from itertools import count
from mimetypes import MimeTypes
from pathlib import Path
from typing import Final

from mcp_hub.attach.folder import make_folder
from mcp_hub.types import plural

_TYPES: Final = {
    **{"audio/wav": ".wav", "audio/ogg": ".ogg", "audio/webm": ".webm", "audio/mp4": ".m4a", "audio/flac": ".flac"},
    **{"image/webp": ".webp", "image/avif": ".avif", "application/gzip": ".gz"},
}
"""MIME types that the table of Python may lack."""


def make_media_folder(folder: Path) -> None:
    """Makes the folder, for nobody else to look into, unless it exists. Raises `OSError`."""
    make_folder(folder)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(13, "Permission denied", str(folder))


def saved(blocks: Sequence[object], folder: Path) -> Iterator[str]:
    """Writes each binary block into a file; yields a sentence about each. Raises `OSError`."""
    for place, block in enumerate(blocks, 1):
        if (found := _binary(block)) is None:
            continue
        kind, text = found
        try:
            data = b64decode("".join(text.split()), validate=True)
        except (binascii.Error, ValueError):
            yield f"block {place} ({kind}) is not saved: its data are not Base64"
            continue
        path = _written(folder, str(place), _extension(kind), data)
        yield f"saved {path} ({kind}, {plural(len(data), 'byte')})"


def _binary(block: object) -> tuple[str, str] | None:
    """The MIME type and the Base64 text of a block; None if it is not binary."""
    if not isinstance(block, dict):
        return None
    resource = block.get("resource")
    holder, data = (resource, resource.get("blob")) if isinstance(resource, dict) else (block, block.get("data"))
    kind = holder.get("mimeType")
    if not isinstance(data, str):
        return None
    return (kind if isinstance(kind, str) else "unknown type"), data


def _extension(kind: str) -> str:
    """Of the table only: no text of a server gets into a name."""
    kind = kind.partition(";")[0].strip().lower()
    return _TYPES.get(kind) or MimeTypes().guess_extension(kind) or ".bin"


def _written(folder: Path, stem: str, extension: str, data: bytes) -> Path:
    for attempt in count(1):
        path = folder / f"{stem}{'' if attempt == 1 else f'-{attempt}'}{extension}"
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            continue
        with os.fdopen(file, "wb") as opened:
            opened.write(data)
        return path
    raise AssertionError
