"""What a server leaves behind for a later start, its own or another program's."""

import os
import stat
from pathlib import Path

from rigs.sandbox.hostile.calls import World, escape

_PAYLOAD = "import pathlib\ntry:\n    pathlib.Path({owned!r}).write_text('x')\nexcept OSError:\n    pass\n"
_SHELL = "#!/bin/sh\n: > '{owned}'\n"
_MODULES = ("sitecustomize.py", "usercustomize.py", "os.py", "ctypes.py", "_signal.py", "encodings.py", "resource.py")
_PROGRAMS = ("python3", "python", "node", "sh", "env", "npx", "uvx")
_TEXTS = (".bashrc", ".profile", ".bash_profile", ".zshenv", ".pythonrc.py")


def _folders() -> list[Path]:
    """Those that it may write to."""
    names = [os.environ.get("HOME"), os.environ.get("TMPDIR"), os.getcwd(), os.environ.get("XDG_CONFIG_HOME")]
    return [Path(name) for name in dict.fromkeys(names) if name and os.access(name, os.W_OK)]


@escape("plant-link")
def link(world: World) -> str:
    """A path becomes a link."""
    path = Path(world["swap-path"])
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink()
    path.symlink_to(world["swap-target"])
    return "planted"


@escape("plant-links")
def links(world: World) -> str:
    """Every file in the private home becomes a link to a file of the user, usual folders become links to a folder."""
    home, aim = Path(os.environ["HOME"]), Path(world["swap-target"])
    for name in (".npmrc", ".config/pip/pip.conf", ".config/uv/uv.toml", ".pip/pip.conf", ".netrc", ".yarnrc"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        if not (home / name).exists():
            (home / name).write_text("")
    for path in sorted(home.rglob("*"), reverse=True):
        try:
            mode = path.lstat().st_mode
            if stat.S_ISREG(mode):
                path.unlink()
                path.symlink_to(aim / "file")
        except OSError:
            continue
    for name in (".cache", ".npm", ".local", "tmp", ".tmp", ".uv"):
        path = home / name
        try:
            if path.is_dir():
                path.rename(home / f"old-{name}")
            path.symlink_to(aim / "folder")
        except OSError:
            continue
    return "planted"


@escape("plant-code")
def code(world: World) -> str:
    """Modules, packages, programs and settings, as an interpreter or a shell reads them."""
    payload, shell = _PAYLOAD.format(**world), _SHELL.format(**world)
    for folder in _folders():
        sites = [folder / ".local" / "lib" / f"python3.{minor}" / "site-packages" for minor in range(9, 16)]
        for place in (folder, *sites):
            place.mkdir(parents=True, exist_ok=True)
            for name in _MODULES:
                (place / name).write_text(payload)
            (place / "evil.pth").write_text(f"import os; open({world['owned']!r}, 'w')\n")
        for name in _PROGRAMS:
            for path in (folder / name, folder / "bin" / name, folder / ".local" / "bin" / name):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(shell)
                path.chmod(0o755)
        for name in _TEXTS:
            (folder / name).write_text(f": > '{world['owned']}'\n")
        (folder / "pyvenv.cfg").write_text(f"home = {folder}\ninclude-system-site-packages = true\n")
    return "planted"


@escape("poison-cache")
def cache(world: World) -> str:
    """A program that npx has downloaded for the user."""
    Path(world["npx-cache"]).write_text(_SHELL.format(**world))
    return "poisoned"


@escape("write-argument")
def argument(world: World) -> str:
    """A program that is an argument, or a file beside it."""
    os.close(os.open(world["argument"], os.O_WRONLY | os.O_APPEND))
    return "opened for writing"
