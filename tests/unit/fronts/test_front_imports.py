"""The fronts come without the SDK."""

import subprocess
import sys

import pytest

from tests.upstreams.child import WAIT

pytestmark = pytest.mark.processes

FRONTS = "mcp_hub.cli.commands.serve, mcp_hub.app.http, mcp_hub.fronts.http.streamable, mcp_hub.fronts.legacy_sse"


def test_serving_over_http_takes_no_sdk() -> None:
    """It would be most of the start."""
    script = (
        f"import sys, {FRONTS}, mcp_hub.fronts.rest.api; sys.exit('mcp' in sys.modules or 'mcp_types' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], timeout=WAIT).returncode == 0


def test_holding_a_login_takes_no_sdk() -> None:
    """It costs half a second and 60 MB."""
    modules = "app.logins, upstreams.remote.connection, upstreams.auth.access, upstreams.auth.login"
    imports = "import mcp_hub." + modules.replace(", ", ", mcp_hub.")
    script = f"import sys; {imports}; sys.exit('mcp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], timeout=WAIT).returncode == 0


def test_hub_over_stdio_takes_no_web_framework_and_no_reader_of_other_clients() -> None:
    """They would be 2 MB of each hub that a client starts."""
    unused = (
        "starlette",
        "email",
        "json5",
        "mcp_hub.onboarding",
        "mcp_hub.edit",
        "mcp_hub.config.load.imported",
        "mcp_hub.upstreams.functions.upstream",
        "mcp_hub.upstreams.folders",
        "mcp_hub.upstreams.executors.upstream",
    )
    loaded = f"', '.join(name for name in {unused} if name in sys.modules)"
    script = f"import sys, mcp_hub.cli.lean, mcp_hub.app.build; sys.exit({loaded} or 0)"
    done = subprocess.run([sys.executable, "-c", script], timeout=WAIT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
