"""Results of every kind that a server may send: each type of content, good and odd, alone and with others."""

import base64
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


PNG = encoded(b"\x89PNG\r\n\x1a\n" + bytes(24))
JPEG = encoded(b"\xff\xd8\xff\xe0" + bytes(24))
GIF = encoded(b"GIF89a" + bytes(24))
WEBP = encoded(b"RIFF\x1a\0\0\0WEBPVP8 " + bytes(10))


def png_of(width: int, height: int, more: int = 0) -> str:
    head = b"\x89PNG\r\n\x1a\n" + (13).to_bytes(4, "big") + b"IHDR"
    return encoded(head + width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes(10 + more))


def jpeg_of(width: int, height: int) -> str:
    table = b"\xff\xe0\x00\x10JFIF\0" + bytes(9) + b"\xff\xc4\x00\x04\0\0"
    frame = b"\xff\xc2\x00\x11\x08" + height.to_bytes(2, "big") + width.to_bytes(2, "big") + bytes(10)
    return encoded(b"\xff\xd8" + table + frame)


def gif_of(width: int, height: int) -> str:
    return encoded(b"GIF89a" + width.to_bytes(2, "little") + height.to_bytes(2, "little") + bytes(9))


def webp_of(width: int, height: int) -> dict[str, str]:
    """One of each of the three kinds of WebP."""
    sides = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    bits = ((width - 1) | (height - 1) << 14).to_bytes(4, "little")
    lossy = width.to_bytes(2, "little") + height.to_bytes(2, "little")
    tails = {"VP8X": bytes(8) + sides, "VP8L": bytes(4) + b"\x2f" + bits, "VP8 ": bytes(10) + lossy}
    return {kind: encoded(b"RIFF\0\0\0\0WEBP" + kind.encode() + tail + bytes(8)) for kind, tail in tails.items()}


BMP = encoded(b"BM" + bytes(24))
SVG = '<svg xmlns="http://www.w3.org/2000/svg"><circle r="4"/></svg>'
WAV = encoded(b"RIFF\x1a\0\0\0WAVEfmt " + bytes(10))
MP3 = encoded(b"ID3" + bytes(20))
PDF = encoded(b"%PDF-1.7\n" + bytes(9))
ZIP = encoded(b"PK\x03\x04" + bytes(9))


def image(media_type: object, data: object) -> Json:
    return {"type": "image", "mimeType": media_type, "data": data}


def blob(uri: str, media_type: str | None, data: object) -> Json:
    declared = {} if media_type is None else {"mimeType": media_type}
    return {"type": "resource", "resource": {"uri": uri, **declared, "blob": data}}


def text(value: str) -> Json:
    return {"type": "text", "text": value}


BLOCKS: dict[str, Json] = {
    "text": text("12 files"),
    "error words": text("Error: 3 of 40 lines hold this word"),
    "small error words": text("  error: as the log says"),
    "success words": text("Success: 4 of 4"),
    "empty text": text(""),
    "blank text": text(" \n\t "),
    "no text": {"type": "text"},
    "png": image("image/png", PNG),
    "jpeg": image("image/jpeg", JPEG),
    "gif": image("image/gif", GIF),
    "webp": image("image/webp", WEBP),
    "jpg": image("image/jpg", JPEG),
    "capitals": image("IMAGE/PNG; charset=binary", PNG),
    "jpeg that says png": image("image/png", JPEG),
    "png without type": {"type": "image", "data": PNG},
    "type of null": image(None, PNG),
    "long png": image("image/png", png_of(1280, 8001)),
    "wide jpeg": image("image/jpeg", jpeg_of(9000, 20)),
    "long gif": image("image/gif", gif_of(20, 9000)),
    "svg": image("image/svg+xml", encoded(SVG.encode())),
    "bmp": image("image/bmp", BMP),
    "tiff": image("image/tiff", encoded(b"II*\0" + bytes(9))),
    "heic": image("image/heic", encoded(bytes(9))),
    "no data": image("image/png", ""),
    "data of null": image("image/png", None),
    "bad data": image("image/png", "not base64!"),
    "data in lines": image("image/png", f"{PNG[:20]}\n{PNG[20:]}\n"),
    "data url": image("image/png", f"data:image/png;base64,{PNG}"),
    "no padding": image("image/png", PNG.rstrip("=")),
    "other alphabet": image(
        "image/png", encoded(b"\x89PNG\r\n\x1a\n\xfb\xff\xfe").translate(str.maketrans("+/", "-_"))
    ),
    "wav": {"type": "audio", "mimeType": "audio/wav", "data": WAV},
    "mp3": {"type": "audio", "mimeType": "audio/mp3", "data": MP3},
    "ogg": {"type": "audio", "mimeType": "audio/ogg", "data": encoded(b"OggS" + bytes(9))},
    "alac": {"type": "audio", "mimeType": "audio/x-alac", "data": encoded(bytes(range(9)))},
    "flv": blob("file:///a/b.flv", "video/x-flv", encoded(bytes(range(9)))),
    "pdf": blob("file:///a/report.pdf", "application/pdf", PDF),
    "pdf by data": blob("file:///a/download?id=3", "application/octet-stream", PDF),
    "picture": blob("file:///a/shot.png", "image/png", PNG),
    "sound": blob("file:///a/b.wav", "audio/x-wav", WAV),
    "film": blob("file:///a/b.mp4", "video/mp4", encoded(bytes(9))),
    "zip": blob("file:///a/b.zip", "application/zip", ZIP),
    "docx": blob("x:1", "application/vnd.openxmlformats-officedocument.wordprocessingml.document", ZIP),
    "bytes": blob("file:///a/b", None, encoded(b"\xff\xfe\x00\x81")),
    "csv": blob("file:///a/b.csv", "text/csv", encoded("name\nÄrger\n".encode())),
    "latin": blob("file:///a/b.txt", "text/plain; charset=iso-8859-1", encoded("Ärger".encode("latin-1"))),
    "broken utf-8": blob("file:///a/b.txt", "text/plain", encoded(b"\xff\xfa")),
    "json": blob("file:///a/b.json", "application/json", encoded(b'{"a": 1}')),
    "markdown by name": blob("file:///a/README.md", None, encoded("# Grüße".encode())),
    "empty file": blob("file:///a/b.txt", "text/plain", ""),
    "text resource": {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "line"}},
    "empty resource": {"type": "resource", "resource": {}},
    "null resource": {"type": "resource", "resource": None},
    "blank resource": {"type": "resource", "resource": {"uri": "", "text": "  "}},
    "link": {"type": "resource_link", "uri": "https://example.org/x", "name": "x"},
    "unknown": {"type": "hologram", "data": "x"},
}
"""By name; the corpus has each alone, with a text, and twice with a picture."""


def results() -> Iterator[tuple[str, Json]]:
    """Each result with its name, as a success and as a failure."""
    contents: dict[str, Any] = {"nothing": [], "null": None, "odd": [3, "x", None], "missing": ...}
    for name, block in BLOCKS.items():
        contents |= {name: [block], f"text, {name}": [text("Here:"), block]}
        contents[f"{name}, picture, {name}"] = [block, BLOCKS["png"], block]
    for name, content in contents.items():
        result: Json = {} if content is ... else {"content": content}
        for structured in ({}, {"structuredContent": {"n": 1}}):
            whole = {**result, **structured}
            label = f"{name}{', structure' if structured else ''}"
            yield label, whole
            yield f"{label}, failed", {**whole, "isError": True}
