"""Results in the shapes that public servers send, written by hand after a run of `python -m rigs.formats.servers`."""

from typing import Any

from tests.unit.formats.result_kinds import PDF, PNG, SVG, WAV, blob, encoded, image, text

Json = dict[str, Any]
FILE: Json = {
    "name": "note.gz",
    "uri": "demo://session/note.gz",
    "mimeType": "application/gzip",
    "type": "resource_link",
}
SHOWN: Json = {"audience": ["user", "assistant"], "priority": 1}
ROWS: Json = {"columns": ["x", "y"], "rows": [["Error: none", None]], "rowCount": 1}
SOUND: Json = {"type": "audio", "data": WAV, "mimeType": "audio/wav"}


def both(*blocks: Json) -> Json:
    """Blocks of media, which the structure repeats with all of their data, as a filesystem server does."""
    return {"content": [*blocks], "structuredContent": {"content": [*blocks]}}


RESULTS: dict[str, Json] = {
    "a text": {"content": [text("note")]},
    "an error": {"content": [text("Error: ENOENT: no such file or directory")], "isError": True},
    "an error that says that it is none": {
        "content": [text("Error: File 'note' not found")],
        "structuredContent": {"result": "Error: File 'note' not found"},
        "isError": False,
    },
    "output of a command": {
        "content": [
            {**text("Command failed: exit 3\nError: here\n"), "name": "ERROR"},
            {**text("Error: here"), "name": "x"},
        ],
        "isError": True,
    },
    "no output": {"content": [text("")]},
    "nothing": {"content": []},
    "an empty list": {"content": [], "structuredContent": {"result": []}, "isError": False},
    "a list, an item a block": {
        "content": [text('{"id": 1}'), text('{"id": 2}')],
        "structuredContent": {"result": [{"id": 1}, {"id": 2}]},
    },
    "a number": {"content": [text("42")], "structuredContent": {"result": 42}},
    "a text, wrapped": {"content": [text("tree\n  a\n")], "structuredContent": {"content": "tree\n  a"}},
    "rows as JSON": {"content": [text('{\n "columns": ["x", "y"],\n "rows": [["Error: none", null]], "rowCount": 1}')]},
    "rows, and their JSON": {"content": [text(str(ROWS).replace("'", '"').replace("None", "null"))]}
    | {"structuredContent": ROWS, "_meta": {"example.org/took": 3}},
    "words beside a structure": {
        "content": [text("Found 1 component:\n- Button: a button")],
        "structuredContent": {"components": [{"name": "button", "title": "Button"}], "total": 1},
    },
    "an error with a structure": {
        "content": [text("There is no component note. Known: button")],
        "structuredContent": {"known": ["button"]},
        "isError": True,
    },
    "a picture": {
        "content": [text("Here's the image:"), image("image/png", PNG), text("The image above is the logo.")]
    },
    "an error with a picture": {
        "content": [
            {**text("Error: Operation failed"), "annotations": SHOWN},
            {**image("image/png", PNG), "annotations": SHOWN},
        ]
    },
    "pages of a document": {
        "content": [text('{"pages_rendered": 1}'), {**image("image/png", PNG), "_meta": {"page": 1}}],
    },
    "links": {"content": [text("Here are 2 links:"), {**FILE, "description": "a file"}, FILE]},
    "a file that nobody takes": {
        "content": [blob("demo://session/note.gz", "application/gzip", encoded(b"\x1f\x8b\x08"))]
    },
    "a text as a file": {
        "content": [text("Resource 2:"), blob("demo://dynamic/blob/2", "text/plain", encoded(b"two"))]
    },
    "a text resource": {
        "content": [{"type": "resource", "resource": {"uri": "demo://1", "mimeType": "text/plain", "text": "one"}}]
    },
    "a picture, twice": both(image("image/png", PNG)),
    "a sound, twice": both(SOUND),
    "a drawing, twice": both(image("image/svg+xml", encoded(SVG.encode()))),
    "a document, twice": both(blob("file:///data/report.pdf", "application/octet-stream", PDF)),
}
"""By kind."""
DATA = {
    "a picture, twice": PNG,
    "a sound, twice": WAV,
    "a drawing, twice": encoded(SVG.encode()),
    "a document, twice": PDF,
}
"""The data of those that the structure repeats."""
