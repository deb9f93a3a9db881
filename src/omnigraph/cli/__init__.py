"""The `omnigraph` command.

Owns: flags, exit codes, and how results look on a terminal and as JSON. Never decides anything about a graph. Heavy
rooms are imported inside the commands, so that `--help` is fast. Start reading at `main`, then `scope`.
"""
