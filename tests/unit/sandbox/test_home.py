"""The settings of package indexes in a private home, and its folders."""

import os
import subprocess
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from mcp_hub.sandbox import home as module
from mcp_hub.sandbox.home import HomeCare, PrivateHome, npm_settings, pip_settings, uv_settings
from tests.unit.sandbox.confined import SECONDS, needs_sandbox, sandbox_of
from tests.upstreams.child import until

NPMRC = """
registry=https://npm.corp.example/
@corp:registry = https://scoped.example/npm/
cafile=/etc/corp.pem
nodedir=/usr
//npm.corp.example/:_authToken=corp-token
//scoped.example/npm/:_authToken=${SCOPED}
//registry.npmjs.org/:_authToken=publish
//elsewhere.example/:_auth=other
init-author-name=Me
script-shell=/tmp/x
"""
UV = """
index-url = "https://pypi.corp.example/simple"
cache-dir = "/home/me/cache"
native-tls = true
[[index]]
name = "corp"
url = "https://user:pass@pypi.corp.example/simple"
default = true
[publish]
token = "publish"
"""
PIP = """
[global]
index-url = https://pypi.corp.example/simple
extra-index-url =
    https://a.example
    https://b.example
cert = /etc/corp.pem
user = true
[download]
index-url = https://other.example
"""


def test_npm_keeps_its_registries_with_their_credentials_only() -> None:
    text = npm_settings(NPMRC)
    assert [word in text for word in ("npm.corp.example/\n", "scoped.example/npm/\n", "cafile=/etc/corp.pem")] == [
        True
    ] * 3
    assert "corp-token" in text and "${SCOPED}" in text and "nodedir=/usr\n" in text
    assert [word in text for word in ("publish", "elsewhere", "script-shell", "Me")] == [False] * 4
    public = "registry=https://registry.npmjs.org/\n//registry.npmjs.org/:_authToken=publish\n"
    assert npm_settings(public) == "registry=https://registry.npmjs.org/\n"


def test_uv_keeps_its_indexes() -> None:
    text = uv_settings(UV)
    assert 'index-url = "https://pypi.corp.example/simple"' in text and "native-tls = true" in text
    assert "[[index]]" in text and 'url = "https://user:pass@pypi.corp.example/simple"' in text
    assert "publish" not in text and "cache-dir" not in text
    assert uv_settings("= broken") == uv_settings("") == ""


def test_pip_keeps_its_indexes() -> None:
    text = pip_settings(PIP)
    assert "index-url = https://pypi.corp.example/simple" in text and "https://b.example" in text
    assert "user" not in text and "other.example" not in text
    assert pip_settings("[broken") == ""


def test_settings_are_written_where_the_server_cannot_write(tmp_path: Path) -> None:
    user, private = tmp_path / "user", PrivateHome(str(tmp_path / "private"))
    user.mkdir()
    (user / ".npmrc").write_text(NPMRC)
    private.make(str(user), {})
    assert "npm.corp.example" in Path(private.settings, "npmrc").read_text()
    assert list(private.trusted()) == ["/etc/corp.pem"]
    victim = tmp_path / "victim"
    victim.write_text("mine")
    for name in (".npmrc", ".config", "npmrc"):
        Path(private.home, name).symlink_to(victim)
    (user / ".npmrc").write_text("registry=https://second.example/\n")
    private.make(str(user), {})
    assert victim.read_text() == "mine"
    assert Path(private.settings, "npmrc").read_text() == "registry=https://second.example/\n"
    assert private.variables()["NPM_CONFIG_USERCONFIG"] == os.path.join(private.settings, "npmrc")
    assert os.stat(private.folder).st_mode & 0o077 == 0


def test_a_program_that_runs_packages_reaches_its_index(tmp_path: Path) -> None:
    private = PrivateHome(str(tmp_path / "private"))
    private.make(str(tmp_path), {})

    def hosts(program: str, **env: str) -> list[tuple[str, tuple[int, ...]]]:
        return [(rule.host, rule.ports) for rule in private.index_hosts(program, env)]

    assert hosts("/usr/bin/npx") == [("registry.npmjs.org", (443,))]
    assert hosts("/usr/bin/uvx") == [("pypi.org", (443,)), ("files.pythonhosted.org", (443,))]
    assert hosts("/usr/bin/node") == hosts("/usr/bin/python3") == []
    chosen = hosts("npx", NPM_CONFIG_REGISTRY="http://[::1]:4873/")
    assert chosen == [("::1", (4873,))]
    (tmp_path / ".config/uv").mkdir(parents=True)
    (tmp_path / ".config/uv/uv.toml").write_text(UV)
    private.make(str(tmp_path), {})
    assert set(hosts("uvx")) == {("pypi.corp.example", (443,))}


def fill_deeply(folder: Path, outside: Path, name: str, depth: int) -> None:
    """Folders in one another, each with a link and a file beside the next one."""
    folder.mkdir()
    near = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.symlink(outside, "link", dir_fd=near)
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=near))
        os.mkdir(name, dir_fd=near)
        far = os.open(name, os.O_RDONLY, dir_fd=near)
        os.close(near)
        near = far
    os.close(near)


@pytest.mark.processes
def test_a_home_that_is_too_large_loses_its_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private = PrivateHome(str(tmp_path / "private"))
    private.make(str(tmp_path), {})
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("mine")
    Path(private.home, ".npm").symlink_to(outside)
    Path(private.home, ".cache").mkdir()
    Path(private.home, ".cache/big").write_bytes(b"x" * 20000)
    Path(private.home, "memory.json").write_text("{}")
    assert private.trim()
    assert Path(private.home, ".cache/big").exists()
    monkeypatch.setattr(module, "_MOST", 10_000)
    with private.hold():  # by a process of another hub
        assert private.trim() and Path(private.home, ".cache/big").exists()
    assert private.trim()
    assert not Path(private.home, ".cache").exists() and not Path(private.home, ".npm").exists()
    assert Path(private.home, "memory.json").exists() and Path(private.temporary).is_dir()
    assert (outside / "file").read_text() == "mine"
    for name, depth in (("d", 1100), ("d" * 200, 25)):  # deeper than the stack; paths that the kernel does not take
        fill_deeply(Path(private.home, ".cache"), outside, name, depth)
        try:
            assert private.is_large() and private.trim() and not Path(private.home, ".cache").exists()
        finally:  # pytest fails at folders like this one, also in later runs
            subprocess.run(["rm", "-rf", private.home + "/.cache"], check=True, timeout=SECONDS)
        monkeypatch.undo()  # what is too deep to be measured is large, too
    assert (outside / "file").read_text() == "mine"
    monkeypatch.setattr(module, "_MOST", 10_000)
    Path(private.home, "memory.json").write_bytes(b"x" * 20000)
    assert not private.trim() and Path(private.home, "memory.json").exists()
    with private.hold():
        private.remove()
        assert Path(private.home).exists()
    private.remove()
    assert not Path(private.folder).exists() and (outside / "file").read_text() == "mine"


@pytest.mark.anyio
async def test_private_home_is_held_once_another_hub_has_looked_at_its_size(tmp_path: Path) -> None:
    private = PrivateHome(str(tmp_path / "private"))
    private.make(str(tmp_path), {})

    def is_held() -> bool:
        try:
            with private.hold(shared=False):
                return False
        except BlockingIOError:
            return True

    async with anyio.create_task_group() as tasks:
        with private.hold(shared=False):  # by a hub that starts the same server in this moment
            tasks.start_soon(HomeCare("s", private).run)
            await anyio.wait_all_tasks_blocked()
        await until(is_held, SECONDS)
        tasks.cancel_scope.cancel()
    assert not is_held()


@pytest.mark.anyio
async def test_start_waits_for_a_first_one_only_if_it_may_install_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = PrivateHome(str(tmp_path / "private"))
    private.make(str(tmp_path), {})
    care, npx, marks = HomeCare("s", private), ("/usr/bin/npx", "a"), tmp_path / "private/installed"

    async def waited(seconds: float, *argv: str) -> bool:
        """Whether it went ahead only after this limit."""
        monkeypatch.setattr(module, "_INSTALLING", seconds)
        began = anyio.current_time()
        async with care.first(argv):
            return anyio.current_time() - began >= seconds

    with anyio.fail_after(SECONDS):
        with pytest.raises(ValueError, match="failed"):
            async with care.first(npx):
                raise ValueError("failed")
        assert marks.read_text().endswith(" begun\n")
        with private.install("of another hub"):
            assert await waited(0.1, *npx) and await waited(0.1, "/bin/sh", "-c", "cd x; uvx a")
            assert not await waited(3600, "/bin/node", "a")
        async with care.first(npx):
            assert await waited(0.1, "npx", "b")
        with private.install("of another hub"):
            assert not await waited(3600, *npx)
        monkeypatch.setattr(module, "_MOST", 0)
        private.trim()
        with private.install("of another hub"):
            assert await waited(0.1, *npx)
    for number in range(70):
        with private.install(f"{number}"):
            pass
    assert marks.read_text().split() == [f"{number}" for number in range(6, 70)]


def test_packages_of_a_start_that_was_broken_off_are_removed_and_no_link_leads_elsewhere(tmp_path: Path) -> None:
    private = PrivateHome(str(tmp_path / "private"))
    private.make(str(tmp_path), {})
    (outside := tmp_path / "outside/_npx").mkdir(parents=True)
    (npm := Path(private.home, ".npm")).symlink_to(outside.parent)
    for is_link in (True, False):
        with pytest.raises(ValueError, match="broken off"), private.install("npm"):
            raise ValueError("broken off")
        if not is_link:
            npm.unlink()
            (npm / "_npx/1").mkdir(parents=True)
        with private.hold(), suppress(ValueError), private.install("npm"):
            raise ValueError
        assert is_link or (npm / "_npx/1").exists(), "a process of the server runs"
        with suppress(ValueError), private.install("npm"):
            raise ValueError
        assert outside.exists() and (is_link or not (npm / "_npx").exists())


@needs_sandbox()
@pytest.mark.anyio
async def test_a_private_home_that_grows_during_a_run_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = sandbox_of(tmp_path)
    assert await sandbox.begin(["/bin/true"], {"PATH": "/bin"}, "/", is_spare=False) is not None
    monkeypatch.setattr(module, "_MEASURING", 0.01)
    monkeypatch.setattr(module, "_MOST", 10_000)
    log = tmp_path / "state/private/home/log"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sandbox.attend)
        log.write_bytes(b"x" * 20_000)
        await until(lambda: "larger than" in "".join(sandbox.notes), SECONDS)
        log.unlink()
        await until(lambda: not sandbox.notes, SECONDS)
        tasks.cancel_scope.cancel()
