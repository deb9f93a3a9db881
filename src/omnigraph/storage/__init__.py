"""Files and Lance datasets of one graph: the only room that imports `lance` and `obstore`.

Owns: locations and the border of a graph, control objects, locks and leases, answers of tasks, and in `datasets` the
opening, scanning and staging of tables at exact versions. Knows no language and no commit of a graph. Start reading at
`location`, then `datasets.tables` and `datasets.staged`.
"""
