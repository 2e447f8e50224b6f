"""The dashboard of one HTTP front, made from an open hub."""

from collections.abc import Callable

from mcp_hub.app.build import App
from mcp_hub.app.dashboard.approvals import ToolApprovals
from mcp_hub.app.dashboard.curation import HubCuration
from mcp_hub.app.dashboard.edits import HubEdits, ServerEditor
from mcp_hub.app.dashboard.installs import InstallWatch
from mcp_hub.app.dashboard.logins import BrowserLogins
from mcp_hub.app.dashboard.overrides import OverridesFile
from mcp_hub.app.dashboard.raw import RawMessages
from mcp_hub.app.dashboard.watch import HubWatch
from mcp_hub.clock import SystemClock
from mcp_hub.config.schema.settings import Settings
from mcp_hub.fronts.dashboard.access import DashboardAccess
from mcp_hub.fronts.dashboard.api import DashboardApi
from mcp_hub.fronts.rest.api import RestApi
from mcp_hub.protocol.rest.overview import ClientInstall, DashboardMode


def watch_of(app: App) -> HubWatch:
    """The hub as its callers may see it."""
    return HubWatch(app.current, app.hub, app.registry, app.streams, app.operations, app.seen, SystemClock())


def dashboard_of(
    app: App,
    watch: HubWatch,
    rest: RestApi,
    mode: Callable[[], DashboardMode],
    installs: Callable[[], list[ClientInstall]],
    editor: ServerEditor | None,
    is_local: Callable[[Settings], bool],
) -> DashboardApi:
    """`mode` is that of now; `installs` looks for clients, and blocks. `editor` and `is_local` are for `HubEdits`."""

    def is_near() -> bool:
        return is_local(app.settings) and app.settings.hub.http.public_url is None

    seen = app.seen
    file = OverridesFile(seen.config.absolute(), app.operations.reload)
    approvals, logins = (
        ToolApprovals(app.approvals, seen.records, str(file.config)),
        BrowserLogins(app.current, app.logins),
    )
    logs = None if app.server_logs is None else app.server_logs.folder
    raw = RawMessages(app.current, app.upstream_set, SystemClock())
    edits = HubEdits(app.current, editor, is_near, app.operations.reload)
    curation = HubCuration(
        app.current,
        app.hub,
        approvals,
        file,
        logins,
        InstallWatch(installs, SystemClock()),
        edits,
        seen.clients,
        raw,
        logs,
    )
    access = DashboardAccess(lambda: app.settings.hub.http.public_url)
    return DashboardApi(watch, curation, rest, access, mode, max_body=app.settings.hub.http.max_body)


def mode_of(app: App, default: DashboardMode) -> Callable[[], DashboardMode]:
    """The mode that the settings say now; `default` where they name none."""
    return lambda: app.settings.hub.http.dashboard or default
