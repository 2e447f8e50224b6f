"""`python -m tests.architecture` prints every offence in the form of the allow-list; `--shorten` shortens that list."""

import sys
from pathlib import Path

from tests.architecture.allowed import PLACE, counted, lines_for, shortened
from tests.architecture.rules import RULES

found = {name: counted(rule(Path(__file__).parents[2])) for name, rule in RULES.items()}
if "--shorten" in sys.argv:
    PLACE.write_text(shortened(PLACE.read_text(), found))
else:
    for name, counts in found.items():
        if counts:
            print(f"[{name}]", *lines_for(counts), "", sep="\n")
