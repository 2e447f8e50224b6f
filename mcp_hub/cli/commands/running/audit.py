"""`mcp-hub audit`: verifies the audit's lines."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click
from msgspec import to_builtins

from mcp_hub.app.limits import state_dir
from mcp_hub.cli.render import tables
from mcp_hub.cli.render.output import put, say
from mcp_hub.cli.render.tables import plural
from mcp_hub.cli.setup import EXIT_CONFIG, EXIT_TOOL, EXIT_UNAVAILABLE, config_option, fail, load_config
from mcp_hub.stores.audit import AuditReport, chains, generations, unwritten, verify

_LOST: Final = "(overload, a full disk, or a killed hub)"


@click.group()
def audit() -> None:
    """Verify the lines that hub.audit writes."""


@audit.command("verify")
@click.argument("path", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--head", "heads", multiple=True, metavar="HASH", help="Require this hash, such as one of the hub's log.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@config_option
def verify_command(path: Path | None, heads: tuple[str, ...], as_json: bool, config: str | None) -> None:
    """Verify the chain of the audit in PATH and its older files.

    Names each line where the chain breaks, and counts lost records. Without PATH: the files of hub.audit, of every hub
    that wrote there. Exit code 1 if a line was changed or is missing.
    """
    files = [generations(path)] if path is not None else [*chains(_configured(config))]
    if not any(files):
        fail("audit_not_found", f"there is no file {path or _configured(config)}", EXIT_UNAVAILABLE)
    unseen, reports = set(heads), list[tuple[Path, AuditReport, int]]()
    for chain in files:
        try:
            report = verify(chain, unseen)
            reports.append((chain[-1], report, unwritten(report, chain[-1], state_dir(os.environ))))
        except OSError as problem:
            fail("audit_unreadable", f"{chain[-1]} cannot be read: {problem.strerror}", EXIT_UNAVAILABLE)
    is_whole = all(report.is_whole for _, report, _ in reports) and not unseen
    if as_json:
        chain_reports = [
            {"file": str(file), **to_builtins(report), "unwritten": count} for file, report, count in reports
        ]
        tables.print_json({"ok": is_whole, "chains": chain_reports, "missing_heads": sorted(unseen)})
    else:
        for file, report, count in reports:
            _print(file, report, count)
        for head in sorted(unseen):
            say(f"No line has the hash {head}: the lines up to it were replaced or removed.", "red")
    if not is_whole:
        raise SystemExit(EXIT_TOOL)


def _configured(config: str | None) -> Path:
    from mcp_hub.app.telemetry import audit_path

    loaded = load_config(config, partly=True)
    if loaded.settings.hub.audit is None or loaded.settings.hub.audit.path is None:
        fail("no_audit_file", "hub.audit has no path in this configuration. Name the file.", EXIT_CONFIG)
    return audit_path(loaded)


def _print(file: Path, report: AuditReport, unwritten_count: int) -> None:
    put(f"{file}: {plural(report.lines, 'line')}, {report.first} to {report.last}, {' to '.join(report.times)}")
    for problem in report.problems:
        say(problem, "red")
    if report.breaks > len(report.problems):
        say(f"… and {plural(report.breaks - len(report.problems), 'more break')}", "red")
    if report.missing:
        say(f"{plural(report.missing, 'line')} that were written are missing.", "red")
    if report.is_whole:
        put("The chain holds.")
    for note in _notes(report, unwritten_count):
        say(note, "yellow")
    put(f"Its end is {report.head}.")


def _notes(report: AuditReport, unwritten_count: int) -> Sequence[str]:
    notes = []
    if report.first > 1:
        notes.append(f"Lines before {report.first} are in older files, which are not here.")
    if report.losses:
        notes.append(f"{plural(report.losses, 'record')} got no line {_LOST}.")
    if report.kills:
        notes.append(f"The hub ended {plural(report.kills, 'time')} without its last line: it was killed.")
    if unwritten_count:
        notes.append(f"{plural(unwritten_count, 'record')} got no line yet: a hub is running, or was killed.")
    return notes
