"""What travels between a server and its clients, and what both kinds of graphs return.

Owns: results and receipts with their JSON, the Arrow form of rows, error bodies and the way back to exceptions, names
of headers and media types. Knows neither storage nor HTTP. Start reading at `receipts`, then `arrow_results` and
`failures`.
"""
