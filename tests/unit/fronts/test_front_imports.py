"""What the parts of the hub that start often load, and what not."""

import subprocess
import sys

import pytest

from tests.upstreams.child import WAIT

pytestmark = pytest.mark.processes

SERVING = "cli.commands.serve app.http fronts.http.streamable fronts.legacy_sse fronts.rest.api"
LOGINS = "app.logins upstreams.remote.connection upstreams.auth.access upstreams.auth.login"
UNUSED = (
    "starlette email json5 mcp_hub.onboarding mcp_hub.edit mcp_hub.config.load.imported mcp_hub.upstreams.folders "
    "mcp_hub.upstreams.functions.upstream mcp_hub.upstreams.executors.upstream platformdirs"
)

OF_HUBS = (
    "mcp_hub.app mcp_hub.hub mcp_hub.calls mcp_hub.catalog.catalog mcp_hub.upstreams.peer mcp_hub.formats "
    "mcp_hub.onboarding mcp_hub.edit mcp_hub.config.load mcp_hub.config.schema"
)
OF_OTHERS = "pydantic pydantic_core yaml httpx2 rich sqlite3 platformdirs"
ASKING = "cli.commands.tools cli.commands.running.status client.in_process"


@pytest.mark.parametrize(
    ("modules", "unused"),
    [
        (SERVING, "mcp mcp_types httpx2"),  # the SDK would be most of the start
        (LOGINS, "mcp"),  # it costs half a second and 60 MB
        ("cli.lean app.build", UNUSED),  # they would be 2 MB of each hub that a client starts
        (ASKING, f"{OF_HUBS} {OF_OTHERS}"),  # two thirds of such a command
    ],
    ids=["serving over HTTP", "a login", "a hub over stdio", "a command about a running hub"],
)
def test_module_that_is_not_used_is_not_loaded(modules: str, unused: str) -> None:
    imports = ", ".join(f"mcp_hub.{name}" for name in modules.split())
    loaded = f"', '.join(name for name in {unused.split()} if name in sys.modules)"
    script = f"import sys, {imports}; sys.exit({loaded} or 0)"
    done = subprocess.run([sys.executable, "-c", script], timeout=WAIT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_command_starts_without_collections() -> None:
    script = (
        "import gc, sys; from mcp_hub.__main__ import main; gc.collect(); sys.argv = ['mcp-hub', '--version']; "
        "gc.callbacks.append(lambda phase, about: print(phase)); main()"
    )
    done = subprocess.run([sys.executable, "-c", script], timeout=WAIT, capture_output=True, text=True)
    assert done.stdout.split()[:1] == ["mcp-hub,"]


def test_section_that_a_file_leaves_out_is_not_built() -> None:
    script = (
        "import sys; from mcp_hub.config.schema.fields import Section; "
        "from mcp_hub.config.schema.settings import Settings; "
        "Settings.model_validate({'servers': {'a': {'command': 'x'}}}); "
        "print(*(each.__name__ for each in Section.__subclasses__() if each.__pydantic_complete__))"
    )
    done = subprocess.run([sys.executable, "-c", script], timeout=WAIT, capture_output=True, text=True)
    assert (done.stdout.split(), done.stderr) == (["ServerSettings", "Settings"], "")
