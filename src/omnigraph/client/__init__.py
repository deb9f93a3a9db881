"""A graph behind a server, with the methods of an embedded one.

Owns: addresses and tokens of servers, the HTTP connection, requests for every method, files that are sent as one body.
Knows nothing of storage: what comes back is built by `wire`. Start reading at `remote`, then `connection`.
"""
