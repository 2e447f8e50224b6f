"""Fan out over servers: one that fails does not take the others along."""

import asyncio


async def attempt(name: str, call):
    try:
        return {name: await call}
    except ToolError as error:
        print(f"{name}: {error}")
        return {name: []}


async def main(words: str, ticket: int | None = None) -> dict[str, list]:
    """What the wiki, the chat and a ticket have about these words."""
    calls = [attempt("wiki", wiki_find(words=words)), attempt("chat", chat_search(words=words))]
    if ticket is not None:
        calls.append(attempt("ticket", tickets_get(id=ticket)))
    found = {}
    for answer in await asyncio.gather(*calls):
        found |= {name: value if isinstance(value, list) else [value["text"][:40]] for name, value in answer.items()}
    return found
