"""Who may do what: policies that people write in YAML, compiled to Cedar.

Owns: the actions, the YAML language and its findings, the translation to Cedar and its evaluation, the gate that
server and engine ask. Knows nothing about requests, tokens or rows. Start reading at `rules`, then `reading`, `cedar`
and `policy`.
"""
