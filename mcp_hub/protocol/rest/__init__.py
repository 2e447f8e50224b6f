"""The JSON shapes of the REST API, one vocabulary for the front, the client and the command line.

In: nothing but types. Out: msgspec structs for bodies of requests and answers, by subject: `calls`, `lists`, `streams`,
`executors`, `servers`, `tokens`, `history`, `overview`, `problems`. The front encodes answers with them and reads
requests, the client does the reverse, commands show them, and the OpenAPI document is made of them.

Members that may be anything stay encoded (`JsonObjectText`) and are spliced, so results and errors keep their bytes. A
struct says what the JSON is and checks nothing beyond its types. An unknown member is refused in requests
(`forbid_unknown_fields`), so that a misspelled one does not get lost, and ignored in answers, so that an older client
understands a newer hub.

Not here: routes and status codes (`fronts.rest`), the lines of stored events (`protocol.shape.stream_events`).
"""
