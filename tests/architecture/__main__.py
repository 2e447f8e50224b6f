"""`python -m tests.architecture` prints every offence in the form of the allow-list.

`--list RULE …` prints each offence of these rules with its line, `--figures` a table of the sizes that have a goal,
and `--shorten` shortens the list.
"""

import sys
from pathlib import Path

from tests.architecture.allowed import PLACE, counted, lines_for, shortened
from tests.architecture.figures import figures
from tests.architecture.rules import RULES
from tests.architecture.source import collector_paused

ROOT = Path(__file__).parents[2]


def main(arguments: list[str]) -> None:
    match arguments:
        case ["--figures"]:
            print(*figures(ROOT), sep="\n")
        case ["--list", *rules]:
            print(*(offence for rule in rules or RULES for offence in RULES[rule](ROOT)), sep="\n")
        case ["--shorten"]:
            counts = {name: counted(rule(ROOT)) for name, rule in RULES.items()}
            PLACE.write_text(shortened(PLACE.read_text(), counts))
        case _:
            for name, rule in RULES.items():
                if entries := list(lines_for(counted(rule(ROOT)))):
                    print(f"[{name}]", *entries, "", sep="\n")


with collector_paused():
    main(sys.argv[1:])
