"""A script that waits up to an hour for an answer. While it sleeps it takes no worker, and it survives the hub."""

import asyncio


async def main(question: str, channel: str = "ops", minutes: int = 60) -> str:
    """Asks in the chat, and waits for the first answer."""
    id = await chat_ask(channel=channel, text=question)
    for minute in range(minutes):
        if answers := await chat_answers(question=id):
            return f"{answers[0]} (after {minute} min)"
        print(f"no answer after {minute} min")
        await asyncio.sleep(60)
    return "nobody has answered"
