"""Search for tools by what they do: names, descriptions and parameters.

* `documents`: words of a tool
* `languages`: queries in other languages, in English
* `phrases`: the words of tools for what people say, and for values in a query
* `queries`: prepares a query
* `ranker`: ranks tools
* `words`: splits and stems text; words that are used alike
"""
