"""What the run came to: a table in Markdown, with a note for everything that is not `ok`."""

from collections.abc import Sequence

from rigs.clients.clients import STEPS
from rigs.clients.known import KNOWN, Shown, known_fault, known_faults
from rigs.clients.run import ENDS, Outcome, Results, Row

COLUMNS = (*STEPS, ENDS)


def markdown(results: Results, shown: Shown) -> list[str]:
    """The lines; `shown` are the clients' own faults that show without the hub."""
    head = ["client", "speaks", "front", "server", *COLUMNS]
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
    return [row.client.name, row.version, row.front, row.era, *(verdicts.get(step, "–") for step in COLUMNS)]


def _notes(results: Results, shown: Shown) -> list[str]:
    notes = [f"* FAIL {row}, {outcome.step}: {outcome.detail}" for row, outcome in failures(results, shown)]
    found = known_faults(results)
    possible = {
        (row.client.name, fault): None
        for row, outcomes in results.items()
        for outcome in outcomes
        for fault in KNOWN
        if fault.may_be_in(row, outcome.step)
    }
    for name, fault in possible:
        if (name, fault) not in found:
            notes.append(f"* not seen {name}, {fault.step}: {fault.why}")
        elif (name, fault) in shown:
            notes.append(f"* known {name}, {fault.step}, without the hub too: {fault.why}")
        else:
            notes.append(f"* unproven {name}, {fault.step}: it did not fail without the hub, though {fault.why}")
    return notes
