"""Access policies: the policy language, its translation to Cedar, and the gate in front of a graph.

Owns: the actions, the YAML language and its findings, evaluation, decisions in sentences. Imports `core` and `errors`
only. Start reading at `rules`, then `policy`.
"""
