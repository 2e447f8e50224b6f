"""The report as text: one table per case and variant, each side beside the limit relay."""

from collections.abc import Iterable

from bench.cases import Result

# figure → (heading, format); a figure that is not named here is not shown
COLUMNS = {
    "cpu_us": ("CPU µs", ",.1f"),
    "cpu_ms": ("CPU ms", ",.2f"),
    "rate": ("per s", ",.0f"),
    "p50_ms": ("p50 ms", ",.3f"),
    "p99_ms": ("p99 ms", ",.3f"),
    "bytes": ("bytes", ",.0f"),
    "sent": ("sent", ",.0f"),
    "lost": ("lost", ",.0f"),
    "late": ("of these late", ",.0f"),
    "start_ms": ("started ms", ",.1f"),
    "read_ms": ("read ms", ",.1f"),
    "kept_kb": ("kB kept", ",.1f"),
    "wall_ms": ("wall ms", ",.0f"),
    "session_kb": ("kB a session", ",.1f"),
    "init_s": ("initialized s", ".3f"),
    "list_s": ("listed s", ".3f"),
    "over_s": ("after the last s", ".3f"),
    "spread_s": ("apart s", ".3f"),
    "idle_mb": ("idle MB", ".1f"),
    "before_mb": ("before MB", ".1f"),
    "after_mb": ("after MB", ".1f"),
    "all_mb": ("with helpers MB", ".1f"),
    "calls": ("calls", ",.0f"),
    "trip_ms": ("round trip ms", ",.2f"),
    "first_ms": ("first ms", ",.2f"),
    "all_p50_ms": ("all read: p50 ms", ",.2f"),
    "all_p99_ms": ("p99 ms", ",.2f"),
    "all_grown_mb": ("grown MB", "+.1f"),
    "one_p50_ms": ("one does not: p50 ms", ",.2f"),
    "one_p99_ms": ("p99 ms", ",.2f"),
    "one_grown_mb": ("grown MB", "+.1f"),
    "stop_s": ("stopped s", ".3f"),
    "serving_s": ("serving s", ".3f"),
    "closed_s": ("all closed s", ".3f"),
    "call_kb": ("kB a call", ",.1f"),
    "stream_kb": ("kB its stream", ",.1f"),
    "detached_kb": ("kB a call with its stream", ",.1f"),
    "follower_kb": ("kB a follower", ",.1f"),
    "to_client": ("× client", ",.2f"),
    "ratio": ("× plain", ".2f"),
    "more_us": ("more µs", "+.1f"),
    "export_ms": ("first CPU ms", ",.1f"),
    "kept_ms": ("kept CPU ms", ",.4f"),
    "writes": ("writes", ",.0f"),
}
# what the ratio to the limit relay is taken of: the first of these that a table has
RATIO_OF = ("cpu_us", "cpu_ms", "list_s", "idle_mb")


def machine_lines(machine: dict[str, str]) -> list[str]:
    return [f"{key + ':':10}{value}" for key, value in machine.items() if value]


def tables(results: Iterable[Result]) -> list[str]:
    """All tables, in the order of measurement."""
    groups: dict[tuple[str, str], list[Result]] = {}
    absent: dict[str, list[Result]] = {}
    for result in results:
        if result.variant:
            groups.setdefault((result.case, result.variant), []).append(result)
        else:
            absent.setdefault(result.case, []).append(result)
    lines: list[str] = []
    for (case, variant), rows in groups.items():
        lines += ["", f"{case}: {variant}", *table(rows)]
    reasons: dict[tuple[str, str], list[str]] = {}
    for case, rows in absent.items():
        for row in rows:
            reasons.setdefault((row.side, row.note), []).append(case)
    if reasons:
        lines += ["", "not measured"]
    for (side, note), cases in reasons.items():
        lines.append(f"  {side} ({', '.join(dict.fromkeys(cases))}): {note}")
    return lines


def table(rows: list[Result]) -> list[str]:
    """One table as aligned text."""
    keys = [key for key in COLUMNS if any(key in row.figures for row in rows)]
    limit = next((row.figures for row in rows if row.side == "limit"), {})
    base = next((key for key in RATIO_OF if key in keys), "")
    cells = [["", *(COLUMNS[key][0] for key in keys), "× limit"]]
    for row in rows:
        figures = row.figures
        shown = [format(figures[key], COLUMNS[key][1]) if key in figures else "–" for key in keys]
        ratio = f"{figures[base] / limit[base]:.2f}" if limit.get(base) and base in figures else "–"
        cells.append([row.side, *shown, ratio])
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    lines = []
    for line, note in zip(cells, ["", *(row.note for row in rows)], strict=True):
        first, *others = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        rest = "  ".join(other.strip().rjust(width) for other, width in zip(others, widths[1:], strict=True))
        lines.append(f"  {first}  {rest}" + (f"  {note}" if note else ""))
    return lines
