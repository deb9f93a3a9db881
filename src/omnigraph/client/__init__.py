"""A graph behind a server, with the methods, results and errors of an embedded one.

Owns: addresses and tokens of servers, the HTTP connection, requests for every method, files that are sent as one body.
Start reading at `remote_graph`, then `connection`.
"""
