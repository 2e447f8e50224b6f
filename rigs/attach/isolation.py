"""What clients of one hub do not share: credentials, and what belongs to each of them."""

import json
from contextlib import AsyncExitStack

import anyio

from rigs.attach.place import Place, echoed, expect
from rigs.attach.trial import Trial
from rigs.clients.clients import CLIENTS
from rigs.clients.known import known_faults
from rigs.clients.matrix import ERAS
from rigs.clients.rig import NAMES, journal_of, left_running, stop_attached
from rigs.clients.run import Row, driven
from rigs.clients.table import failures
from tests.e2e.answers import Answers, form
from tests.upstreams.child import until
from tests.upstreams.launch import events
from tests.upstreams.messages import Message
from tests.upstreams.stdio_client import StdioClient


async def other_values(trial: Trial) -> None:
    """Clients with another value of one `${VAR}` never share a server, and no value is in any file of the hub."""
    secrets = [f"sk-canary-{number}-6f1c" for number in range(trial.many(2, 4))]
    async with trial.place(servers=("a",)) as place, AsyncExitStack() as stack:
        place.change("a", env={"KEY": "${WHO_AM_I}"})
        for turn in range(2):
            for secret in secrets:
                join = place.joined("--attach", "auto", env={"WHO_AM_I": secret})
                client = await stack.enter_async_context(join)
                seen = await variable(client, "KEY")
                expect(seen == secret, f"turn {turn}: the client with {secret} is served with", seen)
        expect(len(place.servers("a")) >= len(secrets), "too few servers", place.servers("a"))
        _nowhere(place, secrets)


async def variable(client: StdioClient, name: str, server: str = "a") -> str:
    """A variable as the client's server has it."""
    answer = await client.call(f"{server}_env")
    expect("result" in answer, "env failed", answer)
    found: Message = json.loads(answer["result"]["content"][0]["text"])
    return str(found.get(name))


def _nowhere(place: Place, secrets: list[str]) -> None:
    for folder in ("run", "state"):
        for path in (place.root / folder).rglob("*"):
            data = path.read_bytes() if path.is_file() else b""
            found = [secret for secret in secrets if secret.encode() in data or secret in path.name]
            expect(not found, f"{path} has a value of a client's environment", found)


async def own_process(trial: Trial) -> None:
    """A server with `scope: session` has a process for each client, and one with `shared` one for all."""
    async with trial.place() as place:
        place.change("a", scope="session")
        async with place.joined() as one:
            before = len(place.servers("a"))
            async with place.joined() as two:
                for client in (one, two):
                    await echoed(client, f"shared {client.pid}", "b")
                found = len(place.servers("a")), len(place.servers("b"))
                expect(found == (before + 1, 1), "processes of the scopes session and shared", found)
                place.hub()
                two.kill()
                await two.wait_closed()
            await until(lambda: len(place.servers("a")) == before)
            await echoed(one, "still mine")


async def nothing_crosses(trial: Trial) -> None:
    """Clients that use one server at the same time get their own progress, questions and results, and no other."""
    async with trial.place(servers=("a",)) as place, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(place.client()) for _ in range(trial.many(4, 12))]
        await _use(clients.pop(), "first", 1)  # from now on the hub knows that this server asks: one call at a time
        async with anyio.create_task_group() as tasks:
            for number, client in enumerate(clients):
                tasks.start_soon(_use, client, f"client {number}", trial.many(3, 20))


async def _use(client: StdioClient, name: str, rounds: int) -> None:
    client.answers = Answers({"elicitation/create": form(**{"text": name})})
    await client.initialize(name=name)
    for round in range(rounds):
        nonce = f"{name}, round {round}"
        await client.call("a_progress", {"n": 5, "nonce": nonce}, token=nonce)
        answer = await client.call("a_ask_form", {"nonce": nonce})
        expect(name in str(answer.get("result")), f"{name} was answered with", answer)
        await echoed(client, nonce)
    tokens = {m["params"]["progressToken"] for m in client.notifications("notifications/progress")}
    expect(all(str(token).startswith(f"{name}, ") for token in tokens), f"{name} has progress of others", tokens)
    expect(len(tokens) == rounds, f"{name} lacks progress", tokens)
    asked = [str(question) for question in client.answers.asked]
    expect(len(asked) == rounds and all(f"{name}, " in one for one in asked), f"{name} was asked", asked)


async def three_real_clients(trial: Trial) -> None:
    """Three client libraries do all of their steps at once through one hub, and nothing crosses."""
    rows = [Row(CLIENTS[name], "attached", era) for name in _ZOO for era in ERAS]
    (folder := trial.folder / "zoo").mkdir(mode=0o700)
    found: list[str] = []

    async def one(row: Row) -> None:
        outcomes = {row: await driven(row, row.client.steps(row.front), folder, shares=True)}
        found.extend(
            f"{row}, {wrong.step}: {wrong.detail}" for row, wrong in failures(outcomes, known_faults(outcomes))
        )

    async with anyio.create_task_group() as tasks:
        for row in rows:
            tasks.start_soon(one, row)
    starts = {name: events(journal_of(name, folder), "start") for name in NAMES.values()}
    await stop_attached(folder)
    left = await left_running(folder)
    expect(not found, "not as it should be", found)
    expect(not left, "left running", left)
    trial.figures.append(f"{len(rows)} drivers of {len(_ZOO)} client libraries at once through one hub")
    trial.figures += [f"server {name} was started {len(found)} times" for name, found in starts.items()]


_ZOO = ("python-mcp-2-auto", "python-mcp-1", "typescript-sdk-1")
