"""The machinery of `load.py`: input files, the jobs that are compared, memory of a whole process tree.

Everything runs in one process with one warm Spark session; nothing opens a socket beyond loopback. Start reading at
`data`, then `jobs`.
"""
