"""Who may do what: policies that people write in YAML, compiled to Cedar.

Owns: the actions, the YAML language and its findings, the translation to Cedar and its evaluation, the gate that
server and engine ask. Knows nothing about requests, tokens or rows. Start reading at `rules`, then `reading`, `cedar`
and `policy`.
"""

from omnigraph.policy.cases import CaseResult, PolicyCase, read_cases, run_cases
from omnigraph.policy.gate import PolicyGate
from omnigraph.policy.policy import READ_ONLY, Policy
from omnigraph.policy.requests import Decision, PolicyRequest
from omnigraph.policy.rules import Action

__all__ = [
    "READ_ONLY",
    "Action",
    "CaseResult",
    "Decision",
    "Policy",
    "PolicyCase",
    "PolicyGate",
    "PolicyRequest",
    "read_cases",
    "run_cases",
]
