"""Three servers with made data: 500 tickets, a wiki and a chat."""

from mcp_hub import Registry

tickets, wiki, chat = Registry(), Registry(), Registry()
READS = {"readOnlyHint": True}
STATES = ("open", "open", "closed", "closed", "waiting")
ANSWERS: dict[str, int] = {}


@tickets.tool(name="list", annotations=READS)
def list_tickets(page: int) -> list[dict[str, object]]:
    """A page of 50 tickets, from 1 on; an empty one behind the last."""
    numbers = range((page - 1) * 50 + 1, min(page * 50, 500) + 1)
    return [
        {"id": number, "state": STATES[number % 5], "age": number * 7 % 90, "title": f"Printer {number} is on fire"}
        for number in numbers
    ]


@tickets.tool(annotations=READS)
def get(id: int) -> dict[str, object]:
    """One ticket with its text."""
    if not 1 <= id <= 500:
        raise ValueError(f"there is no ticket {id}")
    return {"id": id, "owner": f"team {id % 4}", "text": f"Printer {id} is on fire. " * 40}


@wiki.tool(annotations=READS)
def find(words: str) -> list[str]:
    """Titles of pages."""
    return [f"How to put out a {words}", f"{words}: who to call"]


@chat.tool(annotations=READS)
def search(words: str) -> list[str]:
    """Messages with these words."""
    return [f"anybody else with a {words}?"]


@chat.tool
def ask(channel: str, text: str) -> str:
    """Posts a question; returns its id."""
    ANSWERS[channel] = 0
    return f"{channel}-1"


@chat.tool(annotations=READS)
def answers(question: str) -> list[str]:
    """Answers to a question so far."""
    channel = question.partition("-")[0]
    ANSWERS[channel] = ANSWERS.get(channel, 0) + 1
    return ["yes, go on"] if ANSWERS[channel] > 2 else []
