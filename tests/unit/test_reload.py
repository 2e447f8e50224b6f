"""A reload reads, then refuses or applies; what cannot be used changes nothing, and a storm ends in the last file."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest
from structlog.testing import capture_logs

from mcp_hub.app import reload
from mcp_hub.app.reload import Reloader, stamp_of
from mcp_hub.config.load.load import load
from mcp_hub.config.plan import Plan
from mcp_hub.config.schema.settings import Settings
from mcp_hub.errors import ConfigError, ConfigFinding
from mcp_hub.types import FileStamp, UpstreamState
from tests.upstreams.child import WAIT, until

pytestmark = pytest.mark.anyio

ONE = "servers: {a: {command: x}, b: {command: y}}\n"
BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60)) + "servers: *a59\n"


class Hub:
    """What a reload changes: `applied` has each change."""

    def __init__(self) -> None:
        self.applied: list[tuple[Settings, Plan, tuple[str, ...]]] = []
        self.states: dict[str, UpstreamState] = {}
        self.failed_sessions: set[str] = set()

    def state(self, server: str) -> UpstreamState:
        return self.states.get(server, UpstreamState.READY)

    def apply(self, settings: Settings, change: Plan, restarted: tuple[str, ...]) -> None:
        self.applied.append((settings, change, restarted))

    def revive(self, server: str) -> bool:
        return server in self.failed_sessions


def made(path: Path, text: str = ONE) -> tuple[Reloader, Hub]:
    path.write_text(text)
    hub = Hub()
    return Reloader(load(path, {}), partial(load, path, {}), hub), hub


def written(path: Path, text: str) -> None:
    """As an editor does it: another file is put in the place of the old one."""
    beside = path.with_name(f".{path.name}.tmp")
    beside.write_text(text)
    beside.replace(path)


async def has_adopted(hub: Hub, server: str) -> None:
    await until(lambda: hub.applied and server in hub.applied[-1][0].servers)


def hides_tool(hub: Hub, hides: bool) -> bool:
    return bool(hub.applied) and hub.applied[-1][0].servers["a"].per_tool["t"].hide is hides


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reload, "_LOOK", 0.01)
    monkeypatch.setattr(reload, "_SETTLED", 0.03)


@asynccontextmanager
async def watching(reloader: Reloader) -> AsyncIterator[None]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reloader.watch)
        await anyio.sleep(0.05)
        yield
        tasks.cancel_scope.cancel()


async def test_changes_are_applied_and_logged_in_one_line_without_values(tmp_path: Path) -> None:
    path = tmp_path / "servers.yaml"
    reloader, hub = made(path)
    path.write_text(
        "servers: {b: {command: y, env: {KEY: hunter2}}, c: {command: z}}\nhub: {expose: full, name: other}\n"
    )
    with capture_logs() as logs:
        done = await reloader.reload("signal")
    assert done.is_applied and reloader.last is done and (reloader.applied, reloader.failed) == (1, 0)
    ((_, change, restarted),) = hub.applied
    assert (change.added, change.removed, change.restarted, restarted) == (("c",), ("a",), ("b",), ("c", "b"))
    (told,) = [entry for entry in logs if entry["event"] == "config_reloaded"]
    assert told["added"] == ["c"] and told["removed"] == ["a"] and told["restarted"] == ["b"] and told["kept"] == 0
    assert told["settings"] == ["hub.expose"] and "hunter2" not in str(logs)
    (warned,) = [entry for entry in logs if entry["event"] == "reload_incomplete"]
    assert warned["settings"] == ["hub.name"]
    assert (reloader.settings.hub.expose, reloader.settings.hub.name) == ("full", "mcp-hub")


def linked(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.with_name("nothing"))


def folded(path: Path) -> None:
    path.unlink()
    path.mkdir()


BAD: dict[str, Callable[[Path], object]] = {
    "not YAML": lambda path: path.write_text("servers: {a: ["),
    "empty": lambda path: path.write_text(""),
    "an unknown key": lambda path: path.write_text("servers: {a: {command: x, comand: y}}\nhub: {exposee: full}"),
    "no text": lambda path: path.write_bytes(b"\xff\xfe\x00"),
    "too large": lambda path: path.write_bytes(b"#" * (1 << 21)),
    "a YAML bomb": lambda path: path.write_text(BOMB),
    "gone": lambda path: path.unlink(),
    "a folder": folded,
    "a variable that is not set": lambda path: path.write_text("servers: {a: {command: x, env: {K: '${NOT_SET}'}}}"),
    "a link to nowhere": linked,
}


@pytest.mark.parametrize("bad", BAD)
async def test_a_file_that_cannot_be_used_changes_nothing_and_says_why(tmp_path: Path, bad: str) -> None:
    path = tmp_path / "servers.yaml"
    reloader, hub = made(path)
    before = reloader.settings
    BAD[bad](path)
    with capture_logs() as logs, anyio.fail_after(WAIT):
        done = await reloader.reload("file")
    assert not done.is_applied and done.errors and hub.applied == [] and reloader.settings is before
    (told,) = [entry for entry in logs if entry["event"] == "reload_failed"]
    assert told["findings"] == list(done.errors) and str(path) in told["findings"][0]
    if path.is_dir():
        path.rmdir()
    path.unlink(missing_ok=True)
    path.write_text("servers: {}")
    assert (await reloader.reload("file")).is_applied  # nothing is stuck


async def test_every_finding_is_reported_up_to_a_bound_and_a_check_refuses_what_a_hub_cannot_have(
    tmp_path: Path,
) -> None:
    path = tmp_path / "servers.yaml"
    reloader, _ = made(path)
    path.write_text("servers:\n" + "".join(f"  s{n}: {{command: x, wrong: 1}}\n" for n in range(80)))
    done = await reloader.reload("file")
    assert len(done.errors) == 51 and done.errors[-1] == "… and 30 more findings"
    assert "s0" in done.errors[0] and "s1" in done.errors[1]
    path = tmp_path / "servers.yaml"
    reloader, hub = made(path)

    def check(settings: Settings) -> None:
        raise ConfigError(ConfigFinding("invalid_value", f"not with {len(settings.servers)} servers"))

    reloader.checks.append(check)
    path.write_text("servers: {}")
    assert (await reloader.reload("signal")).errors == ("not with 0 servers [invalid_value]",) and hub.applied == []


async def test_what_was_prepared_is_put_in_place_with_the_settings_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "servers.yaml"
    reloader, hub = made(path)
    told: list[object] = []

    def prepared(settings: Settings) -> Callable[[], None]:
        assert len(settings.servers) < 2, "a mistake of the hub itself"
        return lambda: told.append((settings, len(hub.applied)))

    reloader.prepares.append(prepared)
    path.write_text("servers: {a: {command: x}, b: {command: z}}")
    with capture_logs():
        done = await reloader.reload("file")
    assert (done.is_applied, told, hub.applied) == (False, [], []) and "AssertionError" in done.errors[0]
    path.write_text("servers: {}")
    assert (await reloader.reload("file")).is_applied and told == [(reloader.settings, 1)]


async def test_servers_and_sessions_that_were_given_up_are_tried_again_and_no_others(tmp_path: Path) -> None:
    path = tmp_path / "servers.yaml"
    reloader, hub = made(path)
    hub.states["b"] = UpstreamState.FAILED
    done = await reloader.reload("signal")
    assert done.revived == ("b",) and hub.applied[0][2] == ("b",)
    assert hub.applied[0][1] == Plan(unchanged=tuple(reloader.settings.servers))
    path = tmp_path / "servers.yaml"
    reloader, hub = made(path)
    hub.failed_sessions = {"a", "gone"}
    done = await reloader.reload("signal")
    assert done.revived == ("a",) and hub.applied[0][2] == ()


async def test_reading_that_takes_for_ever_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "servers.yaml"
    reloader, hub = made(path)
    os.mkfifo(tmp_path / "pipe")
    path.write_text(f"servers: {{a: {{command: x, env: {{K: '${{file:{tmp_path}/pipe}}'}}}}}}")
    monkeypatch.setattr(reload, "_READING", 0.1)
    done = await reloader.reload("file")
    try:
        assert not done.is_applied and hub.applied == []
    finally:
        if "took more than" in done.errors[0]:
            os.close(os.open(tmp_path / "pipe", os.O_WRONLY))  # lets the thread go


async def test_file_that_an_editor_replaced_is_read_also_between_reading_and_watching(tmp_path: Path) -> None:
    path = tmp_path / "servers.yaml"
    reloader, hub = made(path)
    async with watching(reloader):
        for name in ("c", "d"):
            written(path, f"servers: {{{name}: {{command: x}}}}")
            await has_adopted(hub, name)
    assert len(hub.applied) == 2
    path = tmp_path / "servers.yaml"
    reloader, hub = made(path)
    written(path, "servers: {}")
    async with watching(reloader):
        await until(lambda: hub.applied)


async def test_links_are_followed_wherever_one_is_turned(tmp_path: Path) -> None:
    """As Kubernetes mounts a ConfigMap: file → link to a folder → link that is replaced."""
    for version in ("one", "two"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "servers.yaml").write_text(f"servers: {{{version}: {{command: x}}}}")
    (tmp_path / "data").symlink_to("one")
    path = tmp_path / "servers.yaml"
    path.symlink_to("data/servers.yaml")
    hub = Hub()
    reloader = Reloader(load(path, {}), partial(load, path, {}), hub)
    async with watching(reloader):
        (tmp_path / "data.tmp").symlink_to("two")
        (tmp_path / "data.tmp").replace(tmp_path / "data")
        await until(lambda: hub.applied)
    assert list(reloader.settings.servers) == ["two"]


async def test_a_storm_of_writes_makes_few_reloads_and_ends_in_the_last_one(tmp_path: Path) -> None:
    path = tmp_path / "servers.yaml"
    reloader, hub = made(path)
    began = anyio.current_time()
    async with watching(reloader):
        for number in range(50):
            written(path, f"servers: {{s{number}: {{command: x}}}}")
            await anyio.sleep(0.002)
        await until(lambda: "s49" in reloader.settings.servers)
    assert len(hub.applied) <= 2 + (anyio.current_time() - began) / reload._SETTLED, "one for each quiet moment"


async def test_a_missing_file_is_reported_once_and_read_when_it_is_back(tmp_path: Path) -> None:
    path = tmp_path / "servers.yaml"
    reloader, hub = made(path)
    async with watching(reloader):
        path.unlink()
        await until(lambda: reloader.failed)
        await anyio.sleep(0.1)
        assert (reloader.failed, hub.applied) == (1, [])
        written(path, "servers: {}")
        await until(lambda: hub.applied)


async def test_who_does_not_want_it_is_not_watched_until_the_file_says_so(tmp_path: Path) -> None:
    path = tmp_path / "servers.yaml"
    reloader, hub = made(path, ONE + "hub: {watch: false}")
    async with watching(reloader):
        written(path, "servers: {}")
        await anyio.sleep(0.2)
        assert hub.applied == []
        assert (await reloader.reload("signal")).is_applied and reloader.settings.hub.watch
        written(path, ONE)
        await until(lambda: len(hub.applied) == 2)


@pytest.mark.slow
async def test_a_reload_by_signal_is_not_repeated_for_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "servers.yaml"
    reloader, hub = made(path)
    async with watching(reloader):
        written(path, "servers: {}")
        await reloader.reload("signal")
        await anyio.sleep(0.2)
        assert len(hub.applied) == 1
        written(path, "servers: [")
        await reloader.reload("signal")
        await anyio.sleep(0.2)
        assert reloader.failed == 1


async def test_the_overrides_beside_the_file_are_watched_too(tmp_path: Path) -> None:
    path, beside = tmp_path / "servers.yaml", tmp_path / "servers.overrides.yaml"
    reloader, hub = made(path)
    async with watching(reloader):
        for hides in (True, False):
            written(beside, f"servers: {{a: {{per_tool: {{t: {{hide: {str(hides).lower()}}}}}}}}}")
            await until(partial(hides_tool, hub, hides))
        written(beside, "servers: {a: {command: evil}}")
        await until(lambda: reloader.failed)
        beside.unlink()
        await until(lambda: not reloader.settings.servers["a"].per_tool)
    assert (len(hub.applied), reloader.failed) == (3, 1), "each version is read once"


async def test_a_file_is_not_read_before_it_stays_the_same(tmp_path: Path) -> None:
    known = FileStamp(1, 1, 1, 1, 1)
    looks = [known, known, None, known._replace(size=2), known._replace(size=3), known._replace(size=3)]
    assert await reload.changed(tmp_path, known, lambda path: looks.pop(0)) == known._replace(size=3)
    assert looks == []


async def test_a_file_that_is_written_all_the_time_is_read_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reload, "_LATEST", 0.3)
    path = tmp_path / "servers.yaml"
    path.write_text(ONE)
    known, looks = stamp_of(path), 0

    def restless(path: Path) -> FileStamp:
        nonlocal looks
        looks += 1
        assert known is not None
        return known._replace(size=looks)

    with anyio.fail_after(WAIT):
        assert await reload.changed(path, known, restless) != known


async def test_change_that_is_not_watched_is_not_noted_as_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "servers.yaml"
    reloader, hub = made(path, f"{ONE}hub: {{watch: false}}\n")
    before, seen = reloader.stamp, anyio.Event()
    written(path, f"{ONE.replace('command: x', 'command: z')}hub: {{watch: false}}\n")

    async def changed(file: Path, earlier: FileStamp | None) -> FileStamp | None:
        if file == path and earlier == before:
            return stamp_of(path)
        if file == path:
            seen.set()
        await anyio.sleep_forever()
        return None

    monkeypatch.setattr(reload, "changed", changed)
    async with watching(reloader):
        await seen.wait()
        assert reloader.stamp == before
        assert not await reloader.reread("a") and hub.applied == [], "a restart takes nothing from it"
