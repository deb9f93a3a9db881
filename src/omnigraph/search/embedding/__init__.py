"""Text to unit vectors, through one client for queries and for files.

    create_embedder(settings) → EmbeddingClient ─ retries, deadline, validation, log
                                      └ provider ─ remote (HTTP) | local (weights in a package) | mock

`contract` has the two seams, `settings` the variables, `vectors` the arithmetic that every provider shares.
"""
