"""The machinery of `history.py`: stores under version control that take turns at branches, commits, merges and diffs.

OmniGraph runs in this process, doltlite in a worker of the peers' environment; both offer the methods of
`contract.Store`, and each times itself, so pipes between processes do not count. Start reading at `contract`, then
`measurements`.
"""
