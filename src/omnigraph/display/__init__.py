"""What people look at: tables of values, drawings of graphs and schemas, and the files of the explorer page.

Knows plain values, names and numbers, and nothing of graphs. Begin with `tables` and `pictures`.
"""
