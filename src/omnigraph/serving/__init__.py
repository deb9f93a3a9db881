"""What a server serves: its graphs, and the stored queries of each.

Owns: the configuration file of a server, stored queries, their check against a schema and their catalog. Used by the
server and by the command line. Opens no graph and knows no HTTP. Start reading at `config`, then `stored`.
"""
