"""What the run came to: a table in Markdown, with a note for everything that is not `ok`."""

from collections.abc import Collection, Mapping, Sequence

from tests.clients.clients import STEPS
from tests.clients.known import KnownFault, known_fault
from tests.clients.run import ENDS, Outcome, Row

__all__ = ["Results", "Shown", "failures", "markdown"]

Results = Mapping[Row, Sequence[Outcome]]
Shown = Collection[tuple[str, KnownFault]]
"""Names of clients with the faults that they were seen to have without the hub."""


def markdown(results: Results, shown: Shown) -> list[str]:
    head = ["client", "speaks", "front", "server", *STEPS, ENDS]
    lines = [head, ["---"] * len(head), *(_line(row, outcomes, shown) for row, outcomes in results.items())]
    return ["| " + " | ".join(line) + " |" for line in lines] + ["", *_notes(results, shown)]


def failures(results: Results, shown: Shown) -> list[tuple[Row, Outcome]]:
    """What went wrong and is not the client's own fault."""
    return [
        (row, outcome)
        for row, outcomes in results.items()
        for outcome in outcomes
        if _verdict(row, outcome, shown) == "FAIL"
    ]


def _verdict(row: Row, outcome: Outcome, shown: Shown) -> str:
    if outcome.ok:
        return "ok"
    fault = known_fault(row, outcome)
    return "known" if fault and (row.client.name, fault) in shown else "FAIL"


def _line(row: Row, outcomes: Sequence[Outcome], shown: Shown) -> list[str]:
    verdicts = {outcome.step: _verdict(row, outcome, shown) for outcome in outcomes}
    cells = [verdicts.get(step, "–") for step in (*STEPS, ENDS)]
    return [row.client.name, row.version, row.front, row.era, *cells]


def _notes(results: Results, shown: Shown) -> list[str]:
    failed = failures(results, shown)
    notes = [f"* FAIL {row}, {outcome.step}: {outcome.detail}" for row, outcome in failed]
    notes += [
        f"* unproven {row.client.name}, {outcome.step}: known as a fault of its own, but it did not show without the hub"
        for row, outcome in failed
        if known_fault(row, outcome)
    ]
    found = {
        (row.client.name, fault): None
        for row, outcomes in results.items()
        for outcome in outcomes
        if (fault := known_fault(row, outcome)) and (row.client.name, fault) in shown
    }
    return notes + [f"* known {name}, {fault.step} (so without the hub too): {fault.why}" for name, fault in found]
