"""What is published beside the code: the site of the pages, `llms.txt`, the audit, and the workflows."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from rigs import audit, site

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT = PYPROJECT["project"]
WORKFLOWS: dict[str, Any] = {
    path.stem: yaml.safe_load(path.read_text("utf-8")) for path in (ROOT / ".github/workflows").iterdir()
}
JOBS: dict[str, dict[str, Any]] = {name: job for flow in WORKFLOWS.values() for name, job in flow["jobs"].items()}
REPOSITORY = "https://forge.example/hub"


def pages_of_docs() -> set[str]:
    return {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")}


def tree(root: Path, **pages: str) -> Path:
    """A small repository with an index that names no page."""
    rows = "\n".join(f"## {heading}\n\n| | |\n" for heading in site.SECTIONS.values())
    for name, text in {"README": "# Hub\n[docs](docs/README.md)\n", "docs__README": rows, **pages}.items():
        path = root / f"{name.replace('__', '/')}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_the_site_reaches_every_page_and_the_pictures() -> None:
    pages, files = site.reached(ROOT)
    assert pages_of_docs() | {"CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md"} <= set(pages)
    assert {"docs/first.svg", "docs/dashboard-overview.png", "servers.yaml"} <= set(files)


def test_the_navigation_has_every_page_of_docs_once() -> None:
    nav = site.settings(ROOT, "hub", "a hub")["nav"]
    places = re.findall(r'"([^"]+\.md)"', json.dumps(nav))
    assert pages_of_docs() <= set(places) and len(places) == len(set(places))


def test_a_link_to_a_file_that_is_gone_ends_the_build(tmp_path: Path) -> None:
    root = tree(tmp_path, docs__a="# A\n```\n[no link](in-code.md)\n```\n[gone](b.md)\n")
    (root / "README.md").write_text("# Hub\n[a](docs/a.md)\n")
    with pytest.raises(FileNotFoundError, match=r"docs/a\.md: b\.md"):
        site.reached(root)


def test_links_to_folders_and_hidden_files_lead_to_the_repository(tmp_path: Path) -> None:
    root = tree(tmp_path, docs__a="[f](../examples) [s](../.github/S.md#x) [b](b.md#y) [w](https://e.example/)")
    (root / "examples").mkdir()
    assert site.staged(root, "docs/a.md", REPOSITORY) == (
        f"[f]({REPOSITORY}/tree/main/examples) [s]({REPOSITORY}/blob/main/.github/S.md) [b](b.md#y) [w](https://e.example/)"
    )


def test_llms_txt_lists_every_page_with_its_purpose() -> None:
    text = site.llms_txt(ROOT, "mcp-hub", "One server.")
    assert text.startswith("# mcp-hub\n\n> One server.\n\n")
    rows = re.findall(r"^- \[([^\]\n]+)\]\(([^)\s]+)\): ([^\[\]`\n]{3,})$", text, re.MULTILINE)
    assert len(rows) == len(re.findall("^- ", text, re.MULTILINE))
    assert pages_of_docs() - {"docs/README.md"} <= {path for _, path, _ in rows}


def test_the_newest_version_is_the_first_one_listed(tmp_path: Path) -> None:
    for name in ("0.9", "0.10", "0.1"):
        (tmp_path / name).mkdir()
    site.write_versions(tmp_path)
    listed = json.loads((tmp_path / "versions.json").read_text())
    assert [(entry["version"], entry["aliases"]) for entry in listed] == [
        ("0.10", ["latest"]),
        ("0.9", []),
        ("0.1", []),
    ]
    assert 'url=0.10/index.html"' in (tmp_path / "index.html").read_text()


@pytest.mark.parametrize(
    ("stated", "passes"),
    [
        ([{"license": {"id": "MIT"}}], True),
        ([{"expression": "Apache-2.0 OR GPL-3.0-only"}], True),
        ([{"expression": "MIT AND (GPL-3.0-only OR AGPL-3.0-only)"}], False),
        ([{"license": {"id": "GPL-3.0-only"}}], False),
        ([{"license": {"name": "License :: OSI Approved :: BSD License"}}], True),
        ([{"license": {"name": "Proprietary"}}], False),
        ([], False),
    ],
)
def test_licences_that_do_not_fit_are_findings(stated: list[dict[str, Any]], passes: bool) -> None:
    outcome = audit.licences([{"name": "some", "version": "1", "licenses": stated}])
    assert (outcome.findings == ()) is passes


def test_packages_that_pip_audit_skips_were_not_checked() -> None:
    report = {"dependencies": [
        {"name": "fine", "version": "1", "vulns": []},
        {"name": "bad-one", "version": "2", "vulns": [{"id": "PYSEC-1"}]},
        {"name": "skipped", "skip_reason": "not in the index"},
    ]}  # fmt: skip
    outcome = audit.weaknesses(json.dumps(report), ["fine", "Bad_One", "skipped", "unnamed"])
    assert outcome.findings == ("Bad_One 2: PYSEC-1",)
    assert outcome.unchecked == ("2 packages: skipped, unnamed",)
    assert audit.weaknesses("no network", ["fine"]).unchecked


def test_exit_code_tells_findings_from_what_was_not_checked() -> None:
    fine, gap, bad = audit.Outcome("a"), audit.Outcome("b", (), ("x",)), audit.Outcome("c", ("y",))
    assert [audit.exit_code(each) for each in ([fine], [fine, gap], [gap, bad])] == [0, 3, 1]


def steps() -> list[dict[str, Any]]:
    return [step for job in JOBS.values() for step in job.get("steps", ())]


def test_the_workflows_run_targets_that_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    lines = [line for step in steps() for line in re.findall(r"^make ([a-z -]+)", step.get("run", ""), re.MULTILINE)]
    called = {word for line in lines for word in line.split()}
    assert {"test", "audit", "docs", "dist"} <= called <= targets


def test_the_workflows_pin_actions_and_grant_each_job_what_it_needs() -> None:
    for path in (ROOT / ".github/workflows").iterdir():
        uses = re.findall(r"uses: (.*)", path.read_text("utf-8"))
        files = [line.removeprefix("$/") for line in uses if line.startswith("$/")]
        assert all((ROOT / file).is_file() for file in files)
        pinned = [line for line in uses if re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)]
        assert pinned and len(pinned) + len(files) == len(uses), path.name
    writes = {name: {key for key, right in job["permissions"].items() if right == "write"}
              for name, job in JOBS.items()}  # fmt: skip
    assert all(flow["permissions"] == {} for flow in WORKFLOWS.values())
    assert writes == {
        **dict.fromkeys(("linux", "others", "alpine", "container", "audit", "tests"), set()),
        **dict.fromkeys(("build", "image"), {"id-token", "attestations"}),
        **{"publish": {"id-token"}, "release": {"contents"}},
    }
    assert "secrets." not in json.dumps(JOBS["publish"])


def test_a_called_workflow_waits_for_another_group_than_its_caller() -> None:
    groups = [flow["concurrency"]["group"] for flow in WORKFLOWS.values()]
    prefixes = [group.partition("${{")[0] for group in groups]
    assert "" not in prefixes and len(set(prefixes)) == len(groups)


def test_every_supported_python_must_pass_on_linux_and_no_other_system_can_fail_a_run() -> None:
    versions = JOBS["linux"]["strategy"]["matrix"]["python"]
    classified = [text.rpartition(" ")[2] for text in PROJECT["classifiers"] if " 3." in text]
    assert versions == classified and "continue-on-error" not in JOBS["linux"]
    others = JOBS["others"]
    assert {"macos-latest", "windows-latest", "ubuntu-24.04-arm"} == set(others["strategy"]["matrix"]["system"])
    assert {versions[0], versions[-1]} == set(others["strategy"]["matrix"]["python"])
    lenient = {name for name, job in JOBS.items() if job.get("continue-on-error")}
    assert lenient == {"others", "alpine", "container"}
    assert all("(may fail)" in JOBS[name]["name"] for name in lenient)


def test_runs_on_other_systems_list_every_failure() -> None:
    """A part that fails or hangs, and a file that cannot be imported, leave the results of the rest."""
    job = JOBS["others"]
    assert job["strategy"]["fail-fast"] is False and job["defaults"]["run"]["shell"] == "bash"
    tests = [step for step in job["steps"] if "pytest" in step.get("run", "")]
    assert all("--continue-on-collection-errors" in step["run"] and "--junit-xml=" in step["run"] for step in tests)
    assert sum(step["timeout-minutes"] for step in tests) < job["timeout-minutes"]
    last = job["steps"][job["steps"].index(tests[0]) + 1 :]
    assert len(last) >= 3 and all("!cancelled()" in step["if"] for step in last)
    assert "GITHUB_STEP_SUMMARY" in last[-2]["run"]
    marks = [set(re.findall(r"(?:not )?\w+", step["run"].partition('-m "')[2].partition('"')[0])) for step in tests]
    assert marks[0] ^ marks[1] == {"processes", "not processes"}


def test_the_audit_looks_at_every_extra() -> None:
    (extras,) = set(re.findall(r"'\.\[([a-z,]+)\]'", (ROOT / "Makefile").read_text("utf-8"))) - {"uvx"}
    assert set(extras.split(",")) == set(PROJECT["optional-dependencies"])


def test_every_extra_is_described_and_no_other_is_named() -> None:
    extras = set(PROJECT["optional-dependencies"])
    table = (ROOT / "docs/deploy.md").read_text("utf-8").partition("\n## Extras\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == extras
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        named = re.findall(r"(?:mcp-hub|'\.)\[([a-z,]+)\]", page.read_text("utf-8"))
        assert {extra for names in named for extra in names.split(",")} <= extras, page


def copied_into_the_image() -> list[str]:
    """The sources of the first stage of the Dockerfile that .dockerignore lets in."""
    stage = (ROOT / "Dockerfile").read_text("utf-8").partition("\nFROM node")[0]
    sources = [word for line in re.findall(r"^COPY (.*)$", stage, re.MULTILINE) for word in line.split()[:-1]]
    let_in = re.findall(r"^!(.*)$", (ROOT / ".dockerignore").read_text("utf-8"), re.MULTILINE)
    return [source for source in sources if any(source == name or source.startswith(f"{name}/") for name in let_in)]


def test_the_image_is_built_from_every_file_that_the_package_needs() -> None:
    wheel = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {
        "pyproject.toml",
        PROJECT["readme"],
        *PROJECT["license-files"],
        *wheel["packages"],
        *wheel["force-include"],
    }
    assert {name.removesuffix("/*") for name in needed} - set(copied_into_the_image()) == set()


def test_addresses_of_the_project_lead_to_files_that_exist() -> None:
    urls: dict[str, str] = PROJECT["urls"]
    files = [url.partition("/blob/main/")[2] for url in urls.values() if "/blob/main/" in url]
    assert len(files) >= 3 and [file for file in files if not (ROOT / file).is_file()] == []
    lowest = PROJECT["requires-python"].removeprefix(">=")
    assert f"Programming Language :: Python :: {lowest}" in PROJECT["classifiers"]
