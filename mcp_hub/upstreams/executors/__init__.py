"""Executors: tools that workers offer to the hub over REST and run themselves.

In: registrations of workers, the events that they post, and calls from the hub's clients.

Out: calls, cancellations and answers for a worker to fetch; the posted events in the call's channel, each once.

Held together by `upstream.ExecutorUpstream`, an `Upstream` whose tools come and go with leases. `posts` decides what a
worker may post and when: numbered batches, taken whole or refused whole, with credit that slows a fast worker. It is
pure. `registry` holds executors, their calls and their queues, without decisions.

A worker whose lease ends or that is silent during a call ends its calls with `ExecutorLost`; posts of an earlier
registration are refused.

Not here: the HTTP routes (`fronts.rest.executors`) and the numbering that survives the hub (`stores.epochs`).
"""
