"""Lance datasets and control files of one graph: the only room that imports `lance`.

Owns: locations, opening and scanning datasets at exact versions, two-phase writes, forks, control objects, durability.
Never decides what is visible: that is the manifest. Nothing here moves the HEAD of a dataset except `commit_staged`.
Start reading at `tables`, then `reads` and `staged`.
"""
