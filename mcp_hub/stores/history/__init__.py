"""Past calls in batches, within limits of time, number and bytes.

`base`        the record of a batch, and the store's interface
`file`        batches in SQLite or memory
`replicas`    batches on a Redis server
`reading`     queries and figures
"""
