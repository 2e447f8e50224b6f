"""Streams on a Redis or Valkey server, which several replicas of a hub share behind a balancer.

In: the same requests as any store. Commands that come in one pass of the event loop leave in one pipeline.

Out: the same answers on every replica; what another replica wrote is news within a round trip.

Held together by `store`: one hash (the row) and one Redis stream (the events, in chunks under the id `last-0`) for each
stream of the hub, in one hash slot. `scripts` decides each append on the server, by epoch, place and ending: a script
declares all of its keys. `keys` names the keys, `index` lists streams, `records` encodes and checks what is read, `log`
writes events, `pages` reads them. `link` is a connection with its queue; `leases` tells which replicas are alive;
`doorbell` waits for news with one blocking command. `quarantine` sets records aside that are not the hub's.
`connection` makes clients and looks at the server's settings. `mail` carries messages between replicas, `documents` and
`sessions` keep what their names say.

Not here: what happens to calls meanwhile (`stores.recovery.shared`), and the choice of the store (`stores.replicated`).
"""
