"""The artefacts of `make dist`: equal to the golden file, and every disagreement is found.

`python -m tests.rigs.test_dist` writes the golden file anew.
"""

import json
import re
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Final

import pytest
import yaml
from msgspec.structs import replace

from mcp_hub.config.schema.hub import HttpSettings
from rigs.dist import build, checks, outside
from rigs.dist.documents import documents
from rigs.dist.facts import ROOT, Facts, read_facts

GOLDEN: Final = Path(__file__).with_name("dist.json")
FACTS: Final = read_facts()
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def made() -> dict[str, object]:
    """The texts by path; JSON as data."""
    found = documents(FACTS).items()
    return {path: json.loads(text) if path.endswith(".json") else text.splitlines() for path, text in found}


def entries(data: object) -> Iterator[dict[str, object]]:
    """Every entry of a server, however deep."""
    if isinstance(data, dict):
        if "command" in data:
            yield data
        for value in data.values():
            yield from entries(value)


def test_the_artefacts_are_those_of_the_golden_file() -> None:
    assert made() == json.loads(GOLDEN.read_text("utf-8")), "look at the difference; python -m tests.rigs.test_dist"


def test_every_artefact_has_the_version_and_starts_it_without_the_files_of_a_project() -> None:
    found = made()
    starts = [entry for data in found.values() for entry in entries(data)]
    assert len(starts) == 4
    for entry in starts:
        line = " ".join([str(entry["command"]), *map(str, entry["args"])])  # type: ignore[call-overload]
        assert f"{FACTS.name}@{FACTS.version}" in line or entry["command"] == "uv"
        assert line.endswith(("--config @user", "--config ${user_config.config}"))
    versions = [data["version"] for data in found.values() if isinstance(data, dict) and "version" in data]
    assert len(versions) == 6 and set(versions) == {FACTS.version}


def test_the_sources_agree() -> None:
    assert list(checks.of_sources(FACTS, ROOT)) == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (replace(FACTS, version="9.9.9"), ["__version__", "CHANGELOG"]),
        (replace(FACTS, registry_name="io.github.other/mcp-hub"), ["marker"]),
        (replace(FACTS, registry_name="mcp-hub"), ["marker", "not a name"]),
        (replace(FACTS, description="x" * 101), ["101 characters"]),
    ],
)
def test_a_disagreement_of_the_sources_is_found(wrong: Facts, said: list[str]) -> None:
    found = list(checks.of_sources(wrong, ROOT))
    assert len(found) == len(said) and all(part in text for part, text in zip(said, found, strict=True))


def wheel(folder: Path, metadata: str, *names: str, tag: str = "py3-none-any") -> Path:
    path = folder / "mcp_hub-1-py3-none-any.whl"
    info = f"mcp_hub-{FACTS.version}.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{info}/METADATA", metadata)
        file.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nTag: {tag}\n")
        file.writestr(f"{info}/entry_points.txt", "[console_scripts]\nmcp-hub = mcp_hub.cli:main\n")
        for name in names:
            file.writestr(name, "")
    return path


def test_what_a_wheel_has_too_much_or_lacks_is_found(tmp_path: Path) -> None:
    right = f"Name: {FACTS.name}\nVersion: {FACTS.version}\nRequires-Dist: mcp<2.4,>=2.3\n"
    assert list(checks.of_wheel(FACTS, wheel(tmp_path, right, "mcp_hub/py.typed", "LICENSE"))) == []
    wrong = "Name: other\nVersion: 1\nRequires-Dist: mcp>=2.3\nRequires-Dist: mcp-types\n"
    found = list(checks.of_wheel(FACTS, wheel(tmp_path, wrong, "tests/test_x.py", tag="cp311-cp311-linux_x86_64")))
    assert [text.partition(" ")[2] for text in found] == [
        "is other 1",
        "has the tags ['cp311-cp311-linux_x86_64'], not py3-none-any",
        "has tests/test_x.py",
        "lacks py.typed",
        "lacks LICENSE",
        "requires mcp>=2.3: not capped, though it breaks with a major",
    ]


def test_what_an_sdist_has_too_much_or_lacks_is_found(tmp_path: Path) -> None:
    path = tmp_path / "mcp_hub-1.tar.gz"
    with tarfile.open(path, "w:gz") as file:
        for name in ("README.md", "LICENSE", "pyproject.toml", "mcp_hub/py.typed", "bench/load.py"):
            file.addfile(tarfile.TarInfo(f"mcp_hub-1/{name}"), BytesIO())
    found = [text.partition(" ")[2] for text in checks.of_sdist(FACTS, path)]
    assert found == ["has bench/load.py", "lacks CHANGELOG.md"]


def test_the_bundle_is_the_same_bytes_each_time_and_has_no_environment(tmp_path: Path) -> None:
    texts = documents(FACTS)
    first = build.bundle(FACTS, texts, tmp_path).read_bytes()
    assert build.bundle(FACTS, texts, tmp_path).read_bytes() == first
    with zipfile.ZipFile(BytesIO(first)) as file:
        assert sorted(file.namelist()) == ["manifest.json", "pyproject.toml", "server/main.py"]


def test_texts_of_an_earlier_run_are_removed(tmp_path: Path) -> None:
    (tmp_path / "plugins" / "old").mkdir(parents=True)
    build.texts(documents(FACTS), tmp_path)
    assert not (tmp_path / "plugins" / "old").exists() and (tmp_path / "server.json").exists()


def test_the_container_listens_where_the_compose_file_expects_it() -> None:
    port = HttpSettings.model_fields["port"].default
    file = (ROOT / "Dockerfile").read_text("utf-8")
    assert f"EXPOSE {port}\n" in file and f'"--port", "{port}"]' in file and f":{port}/healthz" in file
    service = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))["services"]["hub"]
    assert service["ports"] == [f"127.0.0.1:{port}:{port}"] and service["read_only"] and service["cap_drop"] == ["ALL"]
    mounted = {volume.split(":")[1] for volume in service["volumes"]}
    assert mounted == {"/etc/mcp-hub/servers.yaml", "/var/lib/mcp-hub"} and all(place in file for place in mounted)
    users = [line for line in file.splitlines() if line.startswith("USER")]
    assert users == ["USER 10001"]


def package(folder: Path, name: str, tag: str, *requires: str) -> Path:
    """An empty wheel for the systems of `tag`."""
    path = folder / f"{name}-1-{tag}.whl"
    with zipfile.ZipFile(path, "w") as file:
        lines = "".join(f"Requires-Dist: {each}\n" for each in requires)
        file.writestr(f"{name}-1.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n{lines}")
        file.writestr(f"{name}-1.dist-info/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        file.writestr(f"{name}-1.dist-info/RECORD", "")
    return path


@pytest.mark.processes
@pytest.mark.parametrize(
    ("platform", "version", "lacking"),
    [
        ("x86_64-manylinux_2_28", "3.11", set()),
        ("x86_64-manylinux_2_28", "3.12", {"one-python"}),
        ("x86_64-unknown-linux-musl", "3.11", {"one-python", "glibc"}),
        ("x86_64-pc-windows-msvc", "3.11", {"one-python", "glibc", "two-libcs"}),
    ],
)
def test_every_package_without_a_wheel_for_a_system_is_listed(
    tmp_path: Path, platform: str, version: str, lacking: set[str]
) -> None:
    package(tmp_path, "one_python", "cp311-cp311-manylinux_2_28_x86_64")
    package(tmp_path, "glibc", "cp39-abi3-manylinux_2_17_x86_64")
    for libc in ("manylinux_2_28", "musllinux_1_2"):
        package(tmp_path, "two_libcs", f"cp39-abi3-{libc}_x86_64")
    unix = "two-libcs; sys_platform != 'darwin'"
    top = package(tmp_path, "top", "py3-none-any", "one-python", "glibc", unix, "not-there; sys_platform == 'darwin'")
    line = (f"top @ {top.as_uri()}", platform, version, "--no-index", "--find-links", tmp_path)
    assert outside.without_wheels(*line) == lacking
    if platform.endswith("msvc"):
        with pytest.raises(ValueError, match="not-there"):
            outside.without_wheels(line[0], "aarch64-apple-darwin", *line[2:])


def test_wheels_are_looked_for_on_every_supported_python_and_the_page_has_what_is_compiled() -> None:
    assert [f"Programming Language :: Python :: {version}" for version in outside.PYTHONS] == [
        text for text in PROJECT["classifiers"] if "Python :: 3." in text
    ]
    page = (ROOT / "docs/platforms.md").read_text("utf-8")
    for platform, label in outside.PLATFORMS.items():
        compiled = ", ".join(f"`{name}`" for name in sorted(outside.COMPILED.get(platform, ()))) or "every package"
        assert re.search(rf"^\| {re.escape(label)} \|.*{re.escape(compiled)}", page, re.MULTILINE), label


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(made(), indent=1, ensure_ascii=False) + "\n", "utf-8")


def test_wheels_that_are_not_there_yet_are_no_error(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pip = (sys.executable, "-m", "pip", "download", "--no-index", "--find-links", tmp_path)
    assert not build.succeeds(*pip, "mcp-hub-that-is-not-there") and capfd.readouterr() == ("", "")
