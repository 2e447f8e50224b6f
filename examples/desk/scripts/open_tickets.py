"""500 records down to ten lines."""


async def main(most: int = 10) -> str:
    """The oldest open tickets, one on a line."""
    rows = []
    page = 1
    while batch := await tickets_list(page=page):
        rows += [row for row in batch if row["state"] == "open"]
        page += 1
    rows.sort(key=lambda row: row["age"], reverse=True)
    return "\n".join([f"{row['age']} days: {row['title']}" for row in rows[:most]])
