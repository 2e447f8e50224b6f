"""The search for tools by what they do: a ranker over names, descriptions and parameters, without a model at run time.

In: the tools of one profile, and a query in plain language.

Out: hits with scores, the best first, and whether the best one fits well at all.

Held together by `ranker.SearchIndex`, the tools of several servers with one posting list; a change re-indexes only the
server it belongs to. `indexes` keeps one index for each profile that is searched, so that a hidden tool cannot be
found or guessed from scores. `documents` weighs the words of a tool and has the inverted index, `words` splits and
stems text, `queries` prepares a query, `likeness` knows words that are used alike, `scores` is BM25F with additions for
names and neighbouring words.

Everything but `indexes` is bounded and linear in the length of its texts; nothing but `likeness` reads a file, its own.

Not here: the wording of the answer (`catalog.discovery`) and the choice of tools that a client is listed
(`catalog.views`).
"""
