"""`make audit`: what the hub brings with it, and what is in `.github/`: `python -m rigs.audit TOOLS PYTHON SBOM`.

`TOOLS` is the folder of the programs that check, `PYTHON` an interpreter with the hub and all of its extras, `SBOM` the
file for the list of these packages (CycloneDX). Exit code 0: everything was checked and is fine; 1: there are findings;
3: there are none, and something could not be checked, which the last lines name.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
FINE: Final = frozenset(
    {
        *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CNRI-Python", "ISC", "MIT", "MIT-0", "MPL-2.0"),
        *("PSF-2.0", "Python-2.0", "Unlicense", "Zlib"),
    }
)
"""Licences under which a package may be used beside MIT code, by SPDX identifier."""
CLASSIFIED: Final = {"License :: OSI Approved :: BSD License": "BSD-3-Clause"}
"""Classifiers that count where a package states no identifier."""
READ_BY_HAND: Final = {"protobuf": "BSD-3-Clause"}
"""Packages whose metadata has no identifier: the licence in the file that they ship, read in November 2026."""
LIMIT: Final = 300.0
"""Seconds for one program."""
SCHEMAS: Final = {
    "vendor.github-workflows": ".github/workflows/*.yml",
    "vendor.github-issue-forms": ".github/ISSUE_TEMPLATE/[!c]*.yml",
    "vendor.github-issue-config": ".github/ISSUE_TEMPLATE/config.yml",
}
"""Schemas that check-jsonschema has on board, and the files that they hold for."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One check: its findings, and what it could not look at."""

    name: str
    findings: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()


def licences(components: Iterable[dict[str, Any]]) -> Outcome:
    """The licences of the packages of an SBOM. A package passes if one alternative of one statement is in `FINE`."""
    findings = []
    for component in components:
        name, statements = component["name"], list(_statements(component))
        if not statements and name in READ_BY_HAND:
            statements = [READ_BY_HAND[name]]
        if not any(_is_fine(statement) for statement in statements):
            findings.append(f"{name} {component.get('version', '')}: licence {', '.join(statements) or 'not stated'}")
    return Outcome("licences", tuple(findings))


def _statements(component: dict[str, Any]) -> Iterator[str]:
    for entry in component.get("licenses", []):
        stated = entry.get("license", {})
        words = entry.get("expression") or stated.get("id") or stated.get("name") or ""
        yield CLASSIFIED.get(words, words)


def _is_fine(expression: str) -> bool:
    """Whether one alternative of an SPDX expression has only licences of `FINE`; brackets do not count."""
    alternatives = re.split(r"\s+OR\s+", expression.replace("(", "").replace(")", ""))
    return any(all(part.strip() in FINE for part in re.split(r"\s+AND\s+", each)) for each in alternatives)


def weaknesses(report: str, names: Iterable[str]) -> Outcome:
    """What pip-audit's JSON says. A package that it skips, or does not name, was not checked, whatever it sums up."""
    try:
        entries = {entry["name"].lower().replace("_", "-"): entry for entry in json.loads(report)["dependencies"]}
    except (ValueError, KeyError, TypeError):
        return Outcome("known weaknesses", (), ("all packages: the database cannot be reached",))
    findings, unchecked = [], []
    for name in names:
        entry = entries.get(re.sub(r"[-_.]+", "-", name).lower())
        if entry is None or "skip_reason" in entry:
            unchecked.append(name)
        else:
            findings += [f"{name} {entry['version']}: {each['id']}" for each in entry["vulns"]]
    skipped = (f"{len(unchecked)} packages: {', '.join(unchecked)}",) if unchecked else ()
    return Outcome("known weaknesses", tuple(findings), skipped)


def _run(*line: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs a program, whose exit code counts also if it did not start or end in time (-1)."""
    words = list(map(str, line))
    try:
        return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT)
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(words, -1, "", str(error))


def bill_of_materials(tools: Path, python: Path, sbom: Path) -> tuple[Outcome, list[dict[str, Any]]]:
    """Writes the SBOM; its components."""
    sbom.parent.mkdir(parents=True, exist_ok=True)
    options = ["--pyproject", "pyproject.toml", "--output-reproducible", "--output-file", str(sbom.absolute())]
    done = _run(tools / "cyclonedx-py", "environment", python, *options)
    if done.returncode:
        return Outcome("SBOM", (), (done.stderr.strip()[-500:],)), []
    components: list[dict[str, Any]] = json.loads(sbom.read_text("utf-8"))["components"]
    return Outcome("SBOM"), [each for each in components if each["name"] != "mcp-hub"]


def forge_files(tools: Path) -> Iterator[Outcome]:
    """The workflows and the forms for issues, by their schemas; the workflows by zizmor's rules, without network."""
    for schema, pattern in SCHEMAS.items():
        files = sorted(ROOT.glob(pattern))
        done = _run(tools / "check-jsonschema", "--builtin-schema", schema, *files)
        yield _outcome(f"{pattern}: {len(files)} files", done, is_finding=done.returncode == 1)
    done = _run(tools / "zizmor", "--offline", "--no-progress", "--quiet", ".github/workflows")
    yield _outcome("zizmor", done, is_finding=done.returncode >= 10)


def _outcome(name: str, done: subprocess.CompletedProcess[str], *, is_finding: bool) -> Outcome:
    if done.returncode == 0:
        return Outcome(name)
    words = ((done.stdout + done.stderr).strip()[-3000:],)
    return Outcome(name, words) if is_finding else Outcome(name, (), words)


def outcomes(tools: Path, python: Path, sbom: Path) -> Iterator[Outcome]:
    """All checks, one after the other."""
    bill, components = bill_of_materials(tools, python, sbom)
    yield bill
    yield licences(components)
    packages = next((python.parents[1] / "lib").glob("python*/site-packages"), python)
    done = _run(tools / "pip-audit", "--path", packages, "--progress-spinner", "off", "--format", "json")
    yield weaknesses(done.stdout, [component["name"] for component in components])
    yield from forge_files(tools)


def exit_code(results: Sequence[Outcome]) -> int:
    """1 for findings, 3 for checks that could not be made, else 0."""
    return 1 if any(each.findings for each in results) else 3 if any(each.unchecked for each in results) else 0


def main(tools: Path, python: Path, sbom: Path) -> int:
    """Prints a line for each check, then findings, then what was not checked; the exit code."""
    results = list(outcomes(tools, python, sbom))
    for each in results:
        state = f"{len(each.findings)} findings" if each.findings else "not checked" if each.unchecked else "ok"
        print(f"{each.name}: {state}")
    for each in results:
        for finding in each.findings:
            print(f"\n{each.name}: {finding}")
    for each in results:
        for gap in each.unchecked:
            print(f"\nnot checked: {each.name}: {gap}", file=sys.stderr)
    return exit_code(results)


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:4])))
