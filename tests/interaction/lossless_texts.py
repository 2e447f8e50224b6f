"""JSON texts that are easily spoilt on the way, and what measures one thing that crosses the hub."""

from collections.abc import Awaitable, Callable

from tests.interaction.lossless_places import Place

Row = Callable[[Place], Awaitable[list[str] | None]]
"""What changed at one place, nothing if it is the same; None where there is no such thing."""

BIG = "123456789012345678901234567890"
NUMBERS = '{"a":1.10,"b":1E+2,"c":-0.0,"d":1e400,"e":0.1e1,"f":12345678901234567890.5}'
INTEGERS = f'{{"a":18446744073709551616,"b":-{BIG},"c":9007199254740993,"d":[{"9" * 400}]}}'
ESCAPES = (
    r'{"a":"\u0000\u001f\u007f","b":"\/\u0041\u00e9","c":"é✓😀\ud83d\ude00","d":"\u2028\b\f\n\r\t\"\\","\u006bey":1}'
)
LONE = r'{"a":"x\ud83dy","b":"\ude00\ud83d","c":"\ud83d\ude00"}'
DOUBLED = '{"a":1,"b":{"c":1,"c":2},"a":3}'
DEEP = '{"a":' * 50 + "[" * 50 + "]" * 50 + "}" * 50
SPACED = '{ "a" : [ 1 , 2 ] ,\t"b" : { } }'
BROKEN = '{\n  "a": [\n    1\n  ]\r\n}'
META = '{"example.org/x":{"deep":[1,null,1.50]},"traceparent":"00-ab-cd-01","plain":[]}'


def over_http(row: Row) -> Row:
    """The row of what only a server over HTTP can send: JSON of several lines."""

    async def measured(place: Place) -> list[str] | None:
        return await row(place) if place.transport == "HTTP" else None

    return measured
