"""Turns of sessions at a server whose questions and log messages name no call.

A question on a shared pipe belongs to the one session with calls in flight. So once a server has asked anything,
sessions do not overlap there; with `logs: turns`, neither do those that asked for log messages. Principals take turns,
each with its sessions in order of arrival.
"""

from collections import deque
from collections.abc import Callable, Collection
from typing import Final

import anyio
import msgspec

from mcp_hub.errors import Busy, UpstreamUnavailable

_WAIT: Final = 30.0
"""Seconds that a call waits for its turn."""
_PATIENCE: Final = 10.0
"""Seconds that a call waits at a server that has a successor."""
_QUIET: Final = 1.0
"""Seconds that a call waits before it says so."""
_ECHO: Final = 5.0
"""Seconds after a call was given up in which the server may still ask on its behalf."""
_MOST: Final = 1024
"""Calls of one principal that may wait for a turn at one server."""


class _Turn(msgspec.Struct, eq=False):
    """`came` is set when the call enters or `is_dismissed`."""

    session: str
    is_alone: bool
    came: anyio.Event
    is_dismissed: bool = False


class Turns:
    """The sessions at one server. Before `switch_on`, only `alone` sessions exclude others."""

    def __init__(self, server: str, wait: float = _WAIT, echo: float = _ECHO, *, is_on: bool = False) -> None:
        self._server = server
        self._echo = echo
        self._active: dict[str, int] = {}
        self._echoes: dict[str, float] = {}
        self._alone: set[str] = set()  # those of the active ones that others do not overlap with
        self._waiting: dict[str, deque[_Turn]] = {}
        """By principal, the next one first; none is empty."""
        self._emptied: anyio.Event | None = None
        self._is_on = is_on
        self._wait: tuple[float, Callable[[str], None] | None] = wait, None
        """Seconds that a call waits, and what takes its session elsewhere then."""
        self.ended_calls = 0
        """Calls that have been here and are over."""

    def switch_on(self) -> None:
        self._is_on = True

    def hand_over(self, moves: Callable[[str], None]) -> None:
        """Calls wait less: after a few seconds `moves` takes their session to the successor, and they are dismissed."""
        self._wait = _PATIENCE, moves

    def sessions(self) -> Collection[str]:
        """Sessions with calls here, or with one given up a moment ago."""
        now = anyio.current_time()
        return {*self._active, *(name for name, until in self._echoes.items() if until > now)}

    @property
    def is_empty(self) -> bool:
        return not self._active and not self._waiting

    async def empty(self) -> None:
        while not self.is_empty:
            self._emptied = self._emptied or anyio.Event()
            await self._emptied.wait()

    def enter_now(self, session: str, *, alone: bool = False) -> bool:
        """Enters if nobody waits and the sessions here do not exclude this one."""
        if self._waiting or ((self._is_on or alone or self._alone) and not self._is_free(session, alone)):
            return False
        self._active[session] = self._active.get(session, 0) + 1
        if alone:
            self._alone.add(session)
        return True

    async def enter(
        self,
        session: str,
        principal: str = "",
        *,
        alone: bool = False,
        waits: Callable[[], None] | None = None,
        quiet: float = _QUIET,
    ) -> bool:
        """Waits for the turn; after `quiet` seconds calls `waits` once. Returns whether it did.

        Raises `Busy` after the time limit or when too many wait, `UpstreamUnavailable` if dismissed.
        """
        if self.enter_now(session, alone=alone):
            return False
        line = self._waiting.get(principal, deque())
        if len(line) >= _MOST:
            raise self._busy("too many calls wait")
        turn = _Turn(session, alone, anyio.Event())
        line.append(turn)
        self._waiting[principal] = line
        try:
            has_said = await self._come(turn.came, waits, quiet)
        except anyio.get_cancelled_exc_class():
            if turn.came.is_set() and not turn.is_dismissed:  # it came, too late for this call
                self.leave(session)
            raise
        finally:
            line = self._waiting.get(principal, deque())
            if turn in line:
                line.remove(turn)
                if not line:
                    del self._waiting[principal]
                self._admit()
        self._check(turn)
        return has_said

    def _check(self, turn: _Turn) -> None:
        wait, moves = self._wait
        if not turn.came.is_set() and moves is not None:
            moves(turn.session)
            turn.is_dismissed = True
        if turn.is_dismissed:
            raise UpstreamUnavailable(f'server "{self._server}" has a process for each session now.')
        if not turn.came.is_set():
            raise self._busy(f"another session has been using it for {wait:g} s")

    async def _come(self, turn: anyio.Event, waits: Callable[[], None] | None, quiet: float) -> bool:
        began = anyio.current_time()
        soon = began + quiet
        has_said = False
        while not turn.is_set() and (now := anyio.current_time()) < (end := began + self._wait[0]):
            if waits is not None and not has_said and now >= soon:
                has_said = True
                waits()
            # no longer than an echo lasts: one may begin meanwhile
            until = min([end, end if has_said else soon, now + self._echo, *self._echoes.values()])
            with anyio.move_on_after(until - now):
                await turn.wait()
            self._admit()
        return has_said

    def leave(self, session: str, *, abandoned: bool = False) -> None:
        """Ends a call. After an abandoned one, other sessions wait a few seconds."""
        self._active[session] -= 1
        self.ended_calls += 1
        if not self._active[session]:
            del self._active[session]
            self._alone.discard(session)
            if self._emptied is not None:
                self._emptied.set()
                self._emptied = None
        if abandoned:
            self._echoes.pop(session, None)
            self._echoes[session] = anyio.current_time() + self._echo
            if len(self._echoes) > _MOST:
                del self._echoes[next(iter(self._echoes))]
        if self._waiting:
            self._admit()

    def release(self) -> None:
        """Lets all waiting calls in, to fail with the reason."""
        for line in self._waiting.values():
            for turn in line:
                self._active[turn.session] = self._active.get(turn.session, 0) + 1
                turn.came.set()
        self._waiting.clear()

    def dismiss(self, stay: Collection[str]) -> None:
        for principal, line in list(self._waiting.items()):
            for turn in [turn for turn in line if turn.session not in stay]:
                turn.is_dismissed = True
                turn.came.set()
                line.remove(turn)
            if not line:
                del self._waiting[principal]

    def _is_free(self, session: str, alone: bool) -> bool:
        if not (self._is_on or alone):
            return self._alone <= {session}
        if self._echoes:
            now = anyio.current_time()
            self._echoes = {name: until for name, until in self._echoes.items() if until > now}
        return self._active.keys() <= {session} and self._echoes.keys() <= {session}

    def _admit(self) -> None:
        while self._waiting:
            principal, line = next(iter(self._waiting.items()))
            first = line[0].session
            if not self._is_free(first, line[0].is_alone):
                return
            while line and line[0].session == first and self._is_free(first, line[0].is_alone):
                turn = line.popleft()
                self._active[first] = self._active.get(first, 0) + 1
                if turn.is_alone:
                    self._alone.add(first)
                turn.came.set()
            del self._waiting[principal]
            if line:
                self._waiting[principal] = line

    def _busy(self, why: str) -> Busy:
        cause = "It asks its callers questions" if self._is_on else "Its log messages name no call (`logs: turns`)"
        return Busy(
            f'server "{self._server}" is busy: {why}. {cause}, so sessions take turns. Set `scope: session` to give '
            "each session its own process, or `scope: call` to give each call one, which also helps modern clients "
            "over HTTP: each of their requests is a session.",
            data={"upstream": {"server": self._server}, "setting": "scope: session"},
        )
