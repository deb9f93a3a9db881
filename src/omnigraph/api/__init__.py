"""Types that travel between a caller and a graph, embedded or behind a server.

Owns: results and receipts with their JSON, the Arrow form of rows, bodies and answers of operations, names of the
protocol. Knows no transport. Start reading at `rows` and `results`.
"""
