import json
from typing import Any

import msgspec
import pytest

from mcp_hub.protocol.skills import MOST_BYTES, MOST_FILES, SkillEntry, above, children

URI = "skill://acme/refunds/SKILL.md"
DIGEST = f"sha256:{'0af' * 21}b"


def file(uri: str = URI, **members: Any) -> dict[str, Any]:
    return {"uri": uri, "digest": DIGEST, "size": 1, **members}


def entry(**members: Any) -> bytes:
    about = {"name": "refunds", "description": "Pays back"}
    return json.dumps({"uri": URI, "frontmatter": about, "resources": [file()], **members}).encode()


def inside(count: int, size: int = 1) -> list[dict[str, Any]]:
    return [file(size=size), *(file(f"skill://acme/refunds/{n}", size=size) for n in range(1, count))]


@pytest.mark.parametrize("resources", ["dynamic", inside(MOST_FILES), inside(2, MOST_BYTES // 2)])
def test_a_complete_entry_is_taken_up_to_the_limits(resources: Any) -> None:
    assert msgspec.json.decode(entry(resources=resources), type=SkillEntry).description == "Pays back"


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"uri": "skill://acme/refunds/skill.md"}, "uri does not end in /<name>/SKILL.md"),
        ({"uri": "skill://SKILL.md"}, "uri does not end in /<name>/SKILL.md"),
        ({"uri": "skill://acme/other/SKILL.md"}, "the name is refunds"),
        ({"frontmatter": {"name": "refunds"}}, "description"),
        ({"frontmatter": {"name": "", "description": "d"}}, "length >= 1"),
        ({"resources": None}, "resources"),
        ({"resources": "none"}, "resources"),
        ({"resources": []}, "lacks the SKILL.md itself"),
        ({"resources": [file(), file()]}, "lists a file twice"),
        ({"resources": [file(), file("skill://acme/refunds2/x")]}, "outside of the folder"),
        ({"resources": [file(digest=DIGEST.upper())]}, "digest"),
        ({"resources": [file(digest=f"{DIGEST}\n")]}, "digest"),
        ({"resources": [file(size=-1)]}, "size"),
        ({"resources": [file(size=1.5)]}, "size"),
        ({"resources": inside(MOST_FILES + 1)}, "it has 513 files; at most 512 are allowed"),
        ({"resources": inside(2, MOST_BYTES // 2 + 1)}, "at most 16777216 are allowed"),
    ],
)
def test_an_entry_that_hosts_must_refuse_says_why(members: dict[str, Any], said: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=said):
        msgspec.json.decode(entry(**members), type=SkillEntry)


def test_folders_above_a_uri_end_at_its_scheme() -> None:
    assert list(above("skill://a/b/c")) == ["skill://a/b/c", "skill://a/b", "skill://a"]
    assert list(above("skill://a")) == ["skill://a"]


def test_the_children_of_a_folder_are_files_and_folders_directly_in_it() -> None:
    found = children(["skill://a/x.md", "skill://a/b/y%20z.py", "skill://a/b/c/z", "skill://ab/x"], "skill://a")
    assert found == [
        {"uri": "skill://a/x.md", "name": "x.md", "mimeType": "text/markdown"},
        {"uri": "skill://a/b", "name": "b", "mimeType": "inode/directory"},
    ]
    assert children(["skill://a/b/y%20z.bin_"], "skill://a/b") == [
        {"uri": "skill://a/b/y%20z.bin_", "name": "y z.bin_"}
    ]
    assert children(["skill://a/x.md"], "skill://a/x.md") == []
