"""A desk for scripts: tickets, files, prices and orders as tools, and twenty tasks over them as scripts."""

from typing import Any, Final

from mcp_hub import Registry

registry = Registry()
READS: Final = {"readOnlyHint": True}
OWNERS: Final = ("ada", "bo", "cy", "dee")
TEXT: Final = (
    "The printer on floor {0} says error {0} since Monday; a restart did not help, and nobody has the manual. "
)


def _ticket(id: int) -> dict[str, Any]:
    title = f"Printer {id}" if id % 9 == 0 else f"Ticket {id % 150}"
    state = "open" if id % 3 else "closed"
    return {
        "id": id,
        "title": title,
        "state": state,
        "age": id * 7 % 101,
        "owner": OWNERS[id % 4],
        "body": TEXT.format(id),
    }


@registry.tool(annotations=READS)
def list_tickets(page: int = 1) -> dict[str, Any]:
    """List twenty tickets of a page."""
    return {"tickets": [_ticket(id) for id in range(page * 20 - 19, page * 20 + 1)], "pages": 10}


@registry.tool(annotations=READS)
def get_ticket(id: int) -> dict[str, Any]:
    """Get one ticket by its id."""
    return _ticket(id)


@registry.tool(annotations=READS)
def list_comments(id: int) -> dict[str, Any]:
    """List the comments of a ticket."""
    return {"comments": [{"by": OWNERS[(id + n) % 4], "text": TEXT.format(id + n)} for n in range(4)]}


@registry.tool
def add_label(id: int, label: str) -> dict[str, Any]:
    """Add a label to a ticket."""
    return {"id": id, "labels": [label]}


@registry.tool
def close_ticket(id: int) -> dict[str, Any]:
    """Close a ticket."""
    return {"id": id, "state": "closed"}


@registry.tool(annotations=READS)
def list_folder(path: str) -> dict[str, Any]:
    """List the files in a folder."""
    return {"files": [f"{path}/{number}.log" for number in range(1, 13)]}


@registry.tool(annotations=READS)
def read_text(path: str) -> dict[str, Any]:
    """Read a file as text."""
    number = int(path.rpartition("/")[2].removesuffix(".log"))
    lines = [
        f"2026-01-{day:02} {'ERROR' if day % (number + 2) == 0 else 'INFO'} job {day} took {day} s"
        for day in range(1, 29)
    ]
    return {"text": "\n".join(lines), "next": f"/var/{number + 1}.log" if number < 5 else None}


@registry.tool(annotations=READS)
def get_price(item: int) -> dict[str, Any]:
    """Get the price of an item."""
    if item == 13:
        raise ValueError("no such item: 13")
    return {"item": item, "price": item * 1.5, "currency": "EUR", "supplier": f"Supplier {item % 3}", "stock": item * 2}


@registry.tool(annotations=READS)
def list_orders(customer: str) -> dict[str, Any]:
    """List the orders of a customer."""
    return {
        "orders": [
            {"item": n, "count": n * len(customer), "customer": customer, "note": TEXT.format(n)} for n in range(1, 6)
        ]
    }


_PAGES: Final = """
import asyncio
pages = await asyncio.gather(*[list_tickets(page=page) for page in range(1, {0} + 1)])
rows = [row for page in pages for row in page["tickets"]]
"""
TASKS: Final = {
    "open tickets on 3 pages": _PAGES.format(3) + "len([row for row in rows if row['state'] == 'open'])",
    "the 3 oldest of 200 tickets": _PAGES.format(10)
    + "[row['id'] for row in sorted(rows, key=lambda row: row['age'], reverse=True)[:3]]",
    "owners of 30 tickets": """
import asyncio
rows = await asyncio.gather(*[get_ticket(id=id) for id in range(1, 31)])
sorted(set([row["owner"] for row in rows]))
""",
    "who commented on 12 tickets": """
import asyncio
answers = await asyncio.gather(*[list_comments(id=id) for id in range(1, 13)])
sum([1 for answer in answers for comment in answer["comments"] if comment["by"] == "ada"])
""",
    "label tickets about printers": _PAGES.format(5)
    + """
done = []
for row in rows:
    if "Printer" in row["title"]:
        done.append((await add_label(id=row["id"], label="printer"))["id"])
done
""",
    "errors in 8 files": """
import asyncio
files = await asyncio.gather(*[read_text(path=f"/var/{n}.log") for n in range(1, 9)])
sum([file["text"].count("ERROR") for file in files])
""",
    "errors in a folder": """
import asyncio
names = (await list_folder(path="/var"))["files"]
files = await asyncio.gather(*[read_text(path=name) for name in names])
{name: file["text"].count("ERROR") for name, file in zip(names, files)}
""",
    "follow a chain of files": """
path, seen = "/var/1.log", []
while path:
    file = await read_text(path=path)
    seen.append(path)
    path = file["next"]
seen
""",
    "sum of 12 prices": """
import asyncio
prices = await asyncio.gather(*[get_price(item=item) for item in range(1, 13)])
sum([price["price"] for price in prices])
""",
    "cheapest supplier of 10": """
import asyncio
prices = await asyncio.gather(*[get_price(item=item) for item in range(2, 12)])
min(prices, key=lambda price: price["price"])["supplier"]
""",
    "orders of 6 customers": """
import asyncio
answers = await asyncio.gather(*[list_orders(customer=name) for name in ["al", "bea", "carl", "di", "ed", "fay"]])
sum([order["count"] for answer in answers for order in answer["orders"]])
""",
    "from a ticket to its last comment": """
page = await list_tickets(page=2)
row = max(page["tickets"], key=lambda row: row["age"])
comments = (await list_comments(id=row["id"]))["comments"]
owner = (await get_ticket(id=row["id"]))["owner"]
[owner, comments[-1]["by"]]
""",
    "close stale tickets": _PAGES.format(4)
    + """
stale = [row["id"] for row in rows if row["state"] == "open" and row["age"] > 92]
answers = await asyncio.gather(*[close_ticket(id=id) for id in stale])
len(answers)
""",
    "dearest of 20 items": """
import asyncio
prices = await asyncio.gather(*[get_price(item=item) for item in range(20, 40)])
max(prices, key=lambda price: price["price"])["item"]
""",
    "titles that occur twice": _PAGES.format(10)
    + """
counts = {}
for row in rows:
    counts[row["title"]] = counts.get(row["title"], 0) + 1
len([title for title, count in counts.items() if count > 1])
""",
    "tickets by owner": _PAGES.format(6)
    + """
groups = {}
for row in rows:
    groups.setdefault(row["owner"], []).append(row["id"])
{owner: len(ids) for owner, ids in groups.items()}
""",
    "compare two folders": """
import asyncio
left = (await list_folder(path="/var"))["files"]
right = (await list_folder(path="/old"))["files"]
files = await asyncio.gather(*[read_text(path=name) for name in [*left[:8], *right[:8]]])
[one["text"] == other["text"] for one, other in zip(files[:8], files[8:])].count(True)
""",
    "first file with few errors": """
for number in range(1, 11):
    file = await read_text(path=f"/var/{number}.log")
    if file["text"].count("ERROR") < 4:
        break
number
""",
    "a bill for each customer": """
import asyncio
names = ["al", "bea", "carl", "di", "ed"]
answers = await asyncio.gather(*[list_orders(customer=name) for name in names])
prices = {item: (await get_price(item=item))["price"] for item in range(1, 6)}
{name: sum([o["count"] * prices[o["item"]] for o in answer["orders"]]) for name, answer in zip(names, answers)}
""",
    "prices of 7 items, of which one is missing": """
import asyncio
async def price(item):
    try:
        return (await get_price(item=item))["price"]
    except ToolError:
        return None
await asyncio.gather(*[price(item) for item in range(10, 17)])
""",
}
"""What is asked, and a script that answers; its last line is the answer."""
