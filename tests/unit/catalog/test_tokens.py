"""The estimate against counts of the real o200k encoding, measured once and written down here."""

import pytest

from mcp_hub.catalog.tokens import estimate

MEASURED = {
    "a definition": (
        (
            '{"name":"calendar_create_event","description":"Create an event in a calendar. Returns the '
            'id of the new event.","inputSchema":{"type":"object","properties":{"calendar_id":{"type":"'
            'string","description":"Which calendar, as list_calendars gave it"},"title":{"type":"string'
            '"},"start":{"type":"string","format":"date-time"},"duration":{"type":"integer","minimum":1'
            ',"default":30,"description":"Minutes"},"guests":{"type":"array","items":{"type":"string","'
            'format":"email"}}},"required":["calendar_id","title","start"],"additionalProperties":false'
            '},"annotations":{"readOnlyHint":false,"idempotentHint":false}}'
        ),
        140,
    ),
    "signatures": (
        (
            "calendar_create_event(calendar_id:str, title:str, start:str, duration?:int, guests?:list[s"
            "tr]): Create an event in a calendar\n"
            "calendar_list_events(calendar_id:str, order?:asc|desc, limit?:int): List the events of a c"
            "alendar\n"
            "warehouse_move_stock(item:str, from:str, to:str, quantity?:num): Move stock from one shelf"
            " to another\n"
            "mail_search_messages(query:str, folder?:str, unread_only?:bool): Search the messages of al"
            "l folders"
        ),
        98,
    ),
    "names": (
        (
            "calendar_{create_event delete_event list_calendars list_events move_event update_event}\n"
            "mail_{archive_message list_folders read_message search_messages send_message}\n"
            "warehouse_{count_items list_shelves move_stock}"
        ),
        41,
    ),
    "prose": (
        (
            "The harbour was quiet that morning, and the fog had not yet lifted from the water. Two boa"
            "ts lay at the pier; their crews were mending nets and talking about the weather, as they a"
            "lways did before the season began. Nobody noticed the small grey bird that sat on the mast."
        ),
        58,
    ),
    "indented JSON": (
        (
            '{\n  "orders": [\n    {\n      "id": 1041,\n      "customer": "Anna Schmidt",\n'
            '      "total": 59.9,\n      "shipped": false,\n      "items": [\n        "lamp",\n'
            '        "cable"\n      ]\n    },\n    {\n      "id": 1042,\n'
            '      "customer": "Tom Baker",\n      "total": 12.5,\n      "shipped": true,\n'
            '      "items": [\n        "bulb"\n      ]\n    }\n  ]\n}'
        ),
        109,
    ),
    "code": (
        (
            "def moved(stock: dict[str, int], item: str, count: int) -> dict[str, int]:\n"
            '    """The stock without `count` of `item`.\n\n'
            '    Raises: ValueError if there are fewer.\n    """\n'
            "    left = stock.get(item, 0) - count\n    if left < 0:\n"
            '        raise ValueError(f"only {stock[item]} of {item} left")\n'
            "    return {**stock, item: left}\n"
        ),
        94,
    ),
    "numbers": (
        "[[1, 0.5734, 20931], [2, 0.1192, 774], [3, 0.9981, 150023], [4, 0.0007, 8], [5, 0.4420, 31999]]",
        63,
    ),
    "Chinese": (
        "查询指定城市的天气预报，返回温度、湿度和风力等级。城市可以是名称或者编码，日期的格式为年月日，默认返回未来三天的数据。",
        40,
    ),
    "hexadecimal": (
        "3f9a0c77e1b24d58a6c9d03e5f7812ab 90de4c1b7a2f4e63b58d1c0a9e7f3342 c4b1a5d29e08473f86e2d71b3c5a9f60",
        77,
    ),
}
"""Text, and its tokens."""


@pytest.mark.parametrize("kind", MEASURED)
def test_it_is_within_a_tenth_of_the_real_encoding(kind: str) -> None:
    text, tokens = MEASURED[kind]
    assert abs(estimate(text) - tokens) <= tokens / 10


def test_text_and_its_bytes_cost_the_same() -> None:
    for text, _ in MEASURED.values():
        assert estimate(text) == estimate(text.encode())


def test_what_is_no_unicode_has_a_cost_too() -> None:
    assert estimate("\ud800") == 1
    assert estimate(b"\xff\xfe\xfd") == 2


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("word", 1),
        (" word", 1),
        ("Word word", 2),
        ("camelCaseName", 3),
        ("snake_case_name", 3),
        ('{"name":"x"}', 5),
        ("12345", 2),
        ("\n\n", 1),
        ("a    b", 3),
        (" " * 64, 1),
        ("中文", 2),
        ("😀", 2),
        ("supercalifragilistic", 2),
    ],
)
def test_pieces_are_as_the_rule_says(text: str, tokens: int) -> None:
    assert estimate(text) == tokens


def test_a_long_text_costs_what_its_parts_cost() -> None:
    line = "one line of text, of which there are many; "
    assert abs(estimate(line * 5000) - 5000 * estimate(line)) <= 5000
    assert estimate("\u00e9" * 100_000) * 5 < 100_000 < estimate("\x08" * 100_001)
