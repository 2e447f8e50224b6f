"""`--output DIR`: binary content of a result becomes files, which no server can place or name."""

import os
import stat
from base64 import b64encode
from pathlib import Path

import pytest

from mcp_hub.cli.render.results import make_media_folder, saved

PNG = b"\x89PNG\r\n"


def block(kind: str = "image", mime: object = "image/png", data: bytes = PNG) -> dict[str, object]:
    return {"type": kind, "mimeType": mime, "data": b64encode(data).decode()}


def test_each_binary_block_is_a_file_named_by_position_and_type(tmp_path: Path) -> None:
    blob = {"uri": "x://../../a", "mimeType": "application/pdf", "blob": b64encode(b"%PDF").decode()}
    blocks: list[object] = [
        {"type": "text", "text": "a"},
        block(),
        block("audio", "audio/wav", b"RIFF"),
        {"type": "resource", "resource": blob},
        {"type": "resource", "resource": {"uri": "x://b", "text": "text"}},
        "odd",
        block(mime="image/../../../evil"),
        block(mime=None),
    ]
    said = list(saved(blocks, tmp_path))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        **{"2.png": PNG, "3.wav": b"RIFF", "4.pdf": b"%PDF"},
        **{"7.bin": PNG, "8.bin": PNG},
    }
    assert said[0] == f"saved {tmp_path / '2.png'} (image/png, 6 bytes)"
    assert len(said) == 5


def test_no_file_is_overwritten_and_no_link_is_followed(tmp_path: Path) -> None:
    folder, outside = tmp_path / "out", tmp_path / "outside"
    folder.mkdir()
    (folder / "1.png").write_bytes(b"mine")
    (folder / "1-2.png").symlink_to(outside)
    assert list(saved([block()], folder)) == [f"saved {folder / '1-3.png'} (image/png, 6 bytes)"]
    assert (folder / "1.png").read_bytes() == b"mine" and not outside.exists()


def test_folder_and_files_are_for_their_owner_only(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    make_media_folder(folder)
    list(saved([block()], folder))
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(folder / "1.png").st_mode) == 0o600


def test_data_that_are_not_base64_are_said_so(tmp_path: Path) -> None:
    spoilt = {"type": "image", "mimeType": "image/png", "data": "%%%"}
    assert list(saved([spoilt], tmp_path)) == ["block 1 (image/png) is not saved: its data are not Base64"]
    assert list(tmp_path.iterdir()) == []


def test_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        make_media_folder(tmp_path / "file")
