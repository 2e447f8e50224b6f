"""The measurements of clients that join a background hub: their start, their memory, and the CPU of a call."""

import compileall
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import mcp_hub
from bench import measure
from bench.cases import Figures, Result, Run, echoes, merged, share, timed, warm
from bench.ledger import RelayFailed, Stats
from bench.load import PipeClient
from bench.relays import ATTACHED, CONFIG, Setup, Side, Unavailable, command, environment, launched

START, CALLS = "attach-start", "attach-calls"
CASES = (START, CALLS)
PLAIN = "python -c pass"
RUNS = "a hub runs"
PINGS = 5
SHORTER = 4


def start(run: Run) -> None:
    """Spawn to `initialize` answered of clients that join a hub, beside the bare interpreter, by turns."""
    # as an installer does: with PYTHONDONTWRITEBYTECODE each start would compile what was edited last
    compileall.compile_dir(Path(mcp_hub.__file__).parent, quiet=2)
    setup, unavailable = Setup("stdio"), dict[str, str]()
    run.say(f"  {START}: {RUNS}")
    samples: dict[str, list[Figures]] = {PLAIN: [], ATTACHED: [], "hub": []}
    with launched([ATTACHED], setup, run.options.hub, unavailable) as sides, TemporaryDirectory() as alone:
        run.absent(START, unavailable)
        for _ in range(5 * run.options.rounds if sides else 0):
            samples[PLAIN].append(bare())
            samples[ATTACHED].append(joined(ATTACHED, sides[0]))
        for _ in range(run.options.rounds if sides else 0):
            samples["hub"].append(joined("hub", sides[0], Path(alone)))
    run.results += [Result(START, RUNS, side, merged(found)) for side, found in samples.items() if found]


def bare() -> Figures:
    """The interpreter alone, from spawn to end."""
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return {"init_s": time.perf_counter() - begun}


def joined(relay: str, side: Side, folder: Path | None = None) -> Figures:
    """One more client with the configuration of a side, and the memory that its process has then."""
    place = side.stderr.parent
    line = command(relay, side.setup, place / CONFIG, 0)
    begun = time.perf_counter()
    process = subprocess.Popen(
        line,
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=place,
        env=environment(folder or place, relay),
    )
    with process:
        client = PipeClient(process)
        client.initialize()
        figures = {"init_s": time.perf_counter() - begun, "idle_mb": measure.rss_mb(process.pid)}
        figures["trip_ms"] = measure.median([trip(client) for _ in range(PINGS)]) * 1e3
        assert process.stdin is not None
        process.stdin.close()
    return figures


def trip(client: PipeClient) -> float:
    """Seconds from a `ping` to its answer."""
    begun = time.perf_counter()
    client.ask("ping", {})
    return time.perf_counter() - begun


def calls(run: Run, sides: list[Side], case: str = CALLS) -> None:
    """Echo calls: the CPU of client process and background hub together, beside a hub in the client's own process.

    In more and shorter rounds than others: the system places the processes of a side on its cores for a while, which
    costs them more or less.
    """
    for depth in (1, 32):

        def action(side: Side, depth: int = depth) -> tuple[Figures, Stats]:
            return timed(side, echoes(side, run.options.seconds / SHORTER), depth)

        warm(sides, depth)
        run.alternate(case, f"{depth} in flight", sides, action, SHORTER * run.options.rounds)


def measure_attach(run: Run) -> None:
    """The wanted ones of these cases."""
    if run.wants(START):
        try:
            start(run)
        except (RelayFailed, Unavailable, OSError) as error:
            run.absent(START, {ATTACHED: str(error)})
    share(run, Setup("stdio"), {CALLS: lambda sides: calls(run, sides)}, ("limit", "hub", ATTACHED))
