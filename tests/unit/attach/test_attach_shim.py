"""A client behind the shim, whose hubs die: it notices as little as can be."""

import json
import os
import threading
from queue import Empty, SimpleQueue
from typing import Any

import pytest

from mcp_hub.attach.join import HubPipes, NotJoined, piped
from mcp_hub.attach.shim import Shim

WAIT = 240.0
HELLO = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


class HubEnd:
    """The hub's ends of the pipes; `streams` are those that the shim named when it joined."""

    def __init__(self, files: tuple[int, int], streams: str = "") -> None:
        self.streams = streams
        self._lines, self._out = os.fdopen(files[0], "rb"), os.fdopen(files[1], "wb", buffering=0)

    def read(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._lines.readline())
        return found

    def send(self, *messages: Any) -> None:
        for message in messages:
            line = message if isinstance(message, bytes) else json.dumps(message, separators=(",", ":")).encode()
            self.write(line + b"\n")

    def write(self, data: bytes) -> None:
        while data:
            data = data[self._out.write(data) :]

    def read_some(self) -> bytes:
        return os.read(self._lines.fileno(), 4096)

    def answer(self, id_: int, **result: Any) -> None:
        self.send({"jsonrpc": "2.0", "id": id_, "result": result})

    def die(self) -> None:
        self._lines.close()
        self._out.close()

    @property
    def has_ended(self) -> bool:
        return self._lines.readline() == b""


class Client:
    """A client, the shim in a thread, and the hubs that it joins; `failures` are joins that fail first."""

    def __init__(self, *, gets_own: bool = True) -> None:
        self.hubs: SimpleQueue[HubEnd] = SimpleQueue()
        self.warnings: list[str] = []
        self.failures = 0
        self.private = 0
        self._made: list[HubEnd] = []
        read, self.write = os.pipe()
        out, write = os.pipe()
        self._files = (read, write)
        self._out = os.fdopen(out, "rb")
        shim = Shim(self._joined(""), self._joined, self._own if gets_own else None, self.warnings.append, self._files)
        self.code: object = None
        self.thread = threading.Thread(target=self._run, args=[shim], daemon=True)
        self.thread.start()

    def _run(self, shim: Shim) -> None:
        try:
            shim.run()
        except SystemExit as ended:
            self.code = ended.code

    def _joined(self, streams: str) -> HubPipes:
        if self.failures:
            self.failures -= 1
            raise NotJoined("nobody is there")
        pipes = self._pair(streams)
        pipes.fields = {"status": "ok", "resumes": "1"}
        return pipes

    def _own(self) -> HubPipes:
        self.private += 1
        return self._pair("")

    def _pair(self, streams: str) -> HubPipes:
        ours, theirs = piped()
        self._made.append(HubEnd(theirs, streams))
        self.hubs.put(self._made[-1])
        return ours

    def hub(self) -> HubEnd:
        """The next hub that was joined."""
        return self.hubs.get(timeout=WAIT)

    def send(self, *messages: Any) -> None:
        os.write(self.write, b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    def call(self, id_: int) -> None:
        self.send({"jsonrpc": "2.0", "id": id_, "method": "tools/call", "params": {"name": "t"}})

    def read(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._out.readline())
        return found

    def begin(self) -> HubEnd:
        """The handshake, done."""
        hub = self.hub()
        self.send(HELLO, INITIALIZED)
        assert [hub.read(), hub.read()] == [HELLO, INITIALIZED]
        hub.answer(0, serverInfo={})
        assert self.read()["id"] == 0
        return hub

    def leave(self, hub: HubEnd) -> None:
        """The client leaves, and the hub with it."""
        os.close(self.write)
        assert hub.has_ended
        hub.die()
        self.thread.join(WAIT)
        self.close()

    def close(self) -> None:
        """Closes everything, once the shim has ended."""
        assert not self.thread.is_alive()
        for file in self._files:
            os.close(file)
        self._out.close()
        for one in self._made:
            one.die()


@pytest.fixture
def client() -> Client:
    return Client()


def test_lines_pass_both_ways_and_control_lines_stay_here(client: Client) -> None:
    hub = client.begin()
    note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "#stream\\n#x"}}
    hub.send(b"#stream 1 st_A", note, b"#unknown")
    hub.send(note)
    assert [client.read(), client.read()] == [note, note]
    client.leave(hub)


def test_half_a_line_waits_for_its_rest_on_both_sides(client: Client) -> None:
    hub = client.begin()
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode() + b"\n"
    os.write(client.write, line[:9])
    os.write(client.write, line[9:])
    assert hub.read()["method"] == "ping"
    hub.write(b'{"jsonrpc":"2.0",')
    hub.die()
    again = client.hub()
    assert [again.read()["method"] for _ in range(3)] == ["initialize", "notifications/initialized", "ping"]
    again.answer(0, serverInfo={})
    again.answer(1)
    assert client.read() == {"jsonrpc": "2.0", "id": 1, "result": {}}
    client.leave(again)


def test_last_line_of_a_client_that_closes_its_side_needs_no_end(client: Client) -> None:
    hub = client.begin()
    os.write(client.write, b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
    os.close(client.write)
    assert hub.read()["method"] == "ping" and hub.has_ended
    hub.answer(1)
    assert client.read()["id"] == 1
    hub.die()
    client.thread.join(WAIT)
    client.close()


def test_half_a_line_of_the_hub_is_passed_on_with_its_rest(client: Client) -> None:
    hub = client.begin()
    hub.write(b'{"jsonrpc":"2.0",')
    client.send({"jsonrpc": "2.0", "method": "notifications/x"})
    assert hub.read()["method"] == "notifications/x", "the shim has read the half by now"
    hub.write(b'"method":"notifications/y"}\n')
    assert client.read() == {"jsonrpc": "2.0", "method": "notifications/y"}
    client.leave(hub)


def test_whole_lines_wait_for_a_hub_that_does_not_read(client: Client) -> None:
    hub, count, size = client.begin(), 30, 1 << 14
    client.send(INITIALIZED)  # so that a line fits into the hub's pipe in part
    for n in range(count):
        line = b'{"jsonrpc":"2.0","method":"notifications/x","params":{"n":%d,"t":"' % n
        os.write(client.write, line.ljust(size - 4, b"x") + b'"}}\n')  # each portion of the shim ends with a line
    assert hub.read() == INITIALIZED
    assert [hub.read()["params"]["n"] for _ in range(count)] == list(range(count))
    client.leave(hub)


def test_a_dead_hub_is_replaced_and_what_was_open_is_taken_up(client: Client) -> None:
    hub = client.begin()
    client.send({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    client.call(2)
    client.call(3)
    client.call(4)
    assert [hub.read()["id"] for _ in range(4)] == [1, 2, 3, 4]
    hub.send(b"#stream 3 st_THREE")
    hub.answer(4, content=[])
    assert client.read()["id"] == 4
    hub.die()
    again = client.hub()
    assert again.streams == "3 st_THREE"
    error = client.read()
    assert (error["id"], error["error"]["code"], error["error"]["data"]["code"]) == (2, 1006, "hub_restarted")
    assert [again.read()[key] for key in ("id", "method", "id", "id")] == [
        0, "notifications/initialized", 1, 3,
    ]  # fmt: skip
    again.answer(0, serverInfo={})
    again.answer(1, tools=[])
    again.answer(3, content=[])
    assert [client.read()["id"], client.read()["id"]] == [1, 3]
    client.leave(again)


def test_settings_and_subscriptions_are_made_again(client: Client) -> None:
    hub = client.begin()
    level = {"jsonrpc": "2.0", "id": 1, "method": "logging/setLevel", "params": {"level": "info"}}
    subscribed = [
        {"jsonrpc": "2.0", "id": 2 + n, "method": "resources/subscribe", "params": {"uri": f"a://{n}"}} for n in (0, 1)
    ]
    unsubscribed = {"jsonrpc": "2.0", "id": 4, "method": "resources/unsubscribe", "params": {"uri": "a://0"}}
    client.send(level, *subscribed, unsubscribed)
    for _ in range(4):
        hub.answer(hub.read()["id"])
    assert [client.read()["id"] for _ in range(4)] == [1, 2, 3, 4]
    hub.die()
    again = client.hub()
    assert [again.read() for _ in range(4)] == [HELLO, INITIALIZED, level, subscribed[1]]
    for id_ in (0, 1, 3):
        again.answer(id_)
    again.send({"jsonrpc": "2.0", "method": "notifications/x"})
    assert client.read()["method"] == "notifications/x", "its client has these answers"
    client.leave(again)


def test_after_three_failures_the_client_gets_a_hub_of_its_own(client: Client) -> None:
    hub = client.begin()
    client.failures = 3
    hub.die()
    own = client.hub()
    assert client.private == 1 and len(client.warnings) == 4
    assert [own.read(), own.read()] == [HELLO, INITIALIZED]
    client.leave(own)


@pytest.mark.parametrize(("gets_own", "warning"), [(False, "[not_attached]"), (True, "doctor")])
def test_a_client_is_left_without_a_hub_after_three_failures_where_its_own_ends_or_is_not_wanted(
    gets_own: bool, warning: str
) -> None:
    client = Client(gets_own=gets_own)
    hub = client.begin()
    client.failures = 3
    hub.die()
    if gets_own:
        client.hub().die()
    client.thread.join(WAIT)
    assert client.private == gets_own and client.code == 3 and warning in client.warnings[-1]
    os.close(client.write)
    client.close()


def test_a_hub_that_stops_is_replaced_only_when_it_is_needed(client: Client) -> None:
    hub = client.begin()
    hub.send(b"#stopping")
    hub.die()
    with pytest.raises(Empty):
        client.hubs.get(timeout=0.05)
    client.call(1)
    again = client.hub()
    assert [again.read().get("id") for _ in range(3)] == [0, None, 1]
    again.answer(0)
    again.answer(1, content=[])
    assert client.read() == {"jsonrpc": "2.0", "id": 1, "result": {"content": []}}
    client.leave(again)


def test_a_client_that_does_not_read_or_a_hub_that_does_not_read_loses_nothing(client: Client) -> None:
    hub = client.begin()
    count, text = 400, "x" * 10_000
    writer = threading.Thread(
        target=client.send,
        args=[{"jsonrpc": "2.0", "method": "notifications/x", "params": {"n": n, "t": text}} for n in range(count)],
    )
    writer.start()
    for n in range(count):
        hub.send({"jsonrpc": "2.0", "method": "notifications/y", "params": {"n": n}})
    assert [client.read()["params"]["n"] for _ in range(count)] == list(range(count))
    assert [hub.read()["params"]["n"] for _ in range(count)] == list(range(count))
    writer.join(WAIT)
    client.leave(hub)


def test_a_line_longer_than_any_may_be_is_passed_on_and_not_kept(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_hub.attach.shim._LONGEST", 1000)
    hub = client.begin()
    os.write(client.write, b"x" * 1500)
    assert hub.read_some() == b"x" * 1500
    os.write(client.write, b"\n")
    assert hub.read_some() == b"\n"
    client.leave(hub)
