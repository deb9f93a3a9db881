"""Policies that several tests use."""

from __future__ import annotations

from omnigraph.policy.policy import Policy

#: The example of the specification.
PAPERS = """\
version: 1
groups: { curators: [act-nadia, act-ivo], readers: [act-bot] }
protected_branches: [main]
rules:
  - id: everyone-reads
    allow: { actors: { group: readers }, actions: [read, export], branch_scope: any }
  - id: curators-edit-drafts
    allow: { actors: { group: curators }, actions: [change], branch_scope: unprotected }
  - id: curators-publish
    allow: { actors: { group: curators }, actions: [branch_merge], target_branch_scope: protected }
"""


def papers() -> Policy:
    return Policy.from_text(PAPERS, "papers.yaml")
