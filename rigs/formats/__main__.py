"""`python -m rigs.formats`: what converters of tools do to the captured tools of $MCP_HUB_EVAL_DATA; prints a table.

Results of every kind are written for every provider, too. Exit code 1 for a crash of the hub's own converter, an export
of it that breaks a rule, or a result that a provider would refuse; 2 without the tools.
"""

import sys

from rigs import report
from rigs.clients.install import NotInstalled
from rigs.formats.converters import CONVERTERS
from rigs.formats.measures import Figures, broken_results, measured
from tests.unit.formats.tool_lists import captured_tools

HEAD = (
    "| converter | crashes | enforced | breaks a documented rule | optional parameters made mandatory (tools) "
    "| free-form objects closed | valid arguments refused | CPU |",
    "| --- | --: | --: | --: | --: | --: | --: | --: |",
)


def row(name: str, found: Figures) -> str:
    forced = f"{found.parameters} ({found.mandatory})"
    cells = (name, found.crashed, found.enforced, found.broken, forced, found.closed, found.narrower)
    return "| " + " | ".join(map(str, cells)) + f" | {found.milliseconds:.0f} ms |"


def main() -> int:
    report.arguments("formats", __doc__).parse_args()
    tools = captured_tools()
    if not tools:
        report.say("MCP_HUB_EVAL_DATA names no folder with tool-lists/*.json")
        return 2
    refused = broken_results()
    lines, faults = [f"{len(tools)} tools; {len(refused)} results that a provider refuses", "", *HEAD], refused
    for converter in CONVERTERS:
        report.say(converter.name)
        try:
            found = measured(tools, converter.convert(tools), converter.into)
        except NotInstalled as reason:
            lines.append(f"| {converter.name} | not installed: {reason} | | | | | | |")
            continue
        lines.append(row(converter.name, found))
        mistakes = (found.crashed, found.parameters, found.closed, found.narrower, found.broken)
        if converter.name.startswith("mcp-hub") and any(mistakes):
            faults.append(f"{converter.name}: {found}")
    return report.reported(lines, faults)


if __name__ == "__main__":
    sys.exit(main())
