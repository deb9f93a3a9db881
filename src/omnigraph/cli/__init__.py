"""The command line: parses arguments, calls the library, prints.

Owns: flags, exit codes, and how results look on a terminal and as JSON. Never decides anything about a graph. Commands
return data to `output`, which prints it; heavy rooms are imported inside the commands, so that `--help` is fast. Start
reading at `main`.
"""
