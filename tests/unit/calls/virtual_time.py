"""An event loop on which time passes only when nothing else can happen: long waits cost nothing and are exact."""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, ParamSpec, TypeVar, TypeVarTuple

import anyio

from mcp_hub.aio import named_loop

P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class VirtualLoop(asyncio.SelectorEventLoop):
    """Where a loop would sleep until its next timer, the clock of this one jumps there."""

    def __init__(self) -> None:
        self._elapsed = 1000.0
        super().__init__()
        selector = self._selector  # type: ignore[attr-defined]
        select = selector.select

        def jump(timeout: float | None = None) -> Any:
            events = select(0)
            if not events:
                assert timeout is not None, "everything waits for something that will never happen"
                self._elapsed += timeout
            return events

        selector.select = jump

    def time(self) -> float:
        return self._elapsed


class CoarseLoop(VirtualLoop):
    """Its timers go off up to a millisecond early, as those of libuv do."""

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return super().call_later(int(delay * 1000) / 1000, callback, *args, context=context)


class LoopClock:
    """The clock of the running loop."""

    def now(self) -> float:
        return asyncio.get_running_loop().time()


def run(main: Callable[[], Coroutine[Any, Any, T]], loop: type[VirtualLoop] = VirtualLoop) -> T:
    with named_loop(), asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(main())


def virtual(main: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A test on the loop whose time passes by itself, with a bound for what waits for ever."""

    @wraps(main)
    def test(*args: P.args, **kwargs: P.kwargs) -> None:
        async def bounded() -> None:
            with anyio.fail_after(100_000):
                await main(*args, **kwargs)

        run(bounded)

    return test


def named_like(scenario: Callable[..., object], test: Callable[..., T], *more: str) -> Callable[..., T]:
    """`test` under the name of `scenario`; pytest gives it the scenario's parameters but the first, and `more`."""
    parameters = [*signature(scenario).parameters.values()][1:]
    parameters += [Parameter(name, Parameter.KEYWORD_ONLY) for name in more]
    test.__name__, test.__doc__ = scenario.__name__, scenario.__doc__
    test.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return test


async def sleep(seconds: float) -> None:
    """Lets that much virtual time pass."""
    await asyncio.sleep(seconds)
