"""`omnigraph policy`: files checked, tested and asked before a server uses them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from support.policies import PAPERS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.cli_graphs import Outcome

    Run = Callable[..., Outcome]

SERVER = """
version: 1
groups: { all: [act-nadia] }
rules: [{ id: list, allow: { actors: { group: all }, actions: [graph_list] } }]
"""
CASES = """
version: 1
cases:
  - { id: bots read, actor: act-bot, action: read, branch: main, expect: allow }
  - { id: main is safe, actor: act-ivo, action: change, branch: main, expect: deny }
  - { id: publish, actor: act-ivo, action: branch_merge, branch: d, target_branch: main, expect: allow }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "papers.yaml").write_text(PAPERS)
    (tmp_path / "server.yaml").write_text(SERVER)
    (tmp_path / "cases.yaml").write_text(CASES)
    (tmp_path / "serve.yaml").write_text(
        "graphs: {papers: {store: p.omni, policy: papers.yaml}, free: {store: f.omni}}\n"
        "policy: server.yaml\n"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_valid_policy_is_counted(og: Run, folder: Path) -> None:
    assert og("policy", "validate", "papers.yaml").out == (
        "papers.yaml is valid: a policy of a graph with 3 actors, 2 groups, 3 rules\n"
    )
    assert json.loads(og("policy", "validate", "papers.yaml", "--json").out) == {
        "policies": [
            {
                "file": "papers.yaml",
                "about": "graph",
                "actors": 3,
                "groups": 2,
                "rules": 3,
                "protected_branches": ["main"],
            }
        ]
    }


def test_a_broken_policy_is_shown_with_its_places(og: Run, folder: Path) -> None:
    (folder / "papers.yaml").write_text(PAPERS.replace("readers }", "reader }").replace("1", "2"))
    run = og("policy", "validate", "papers.yaml")
    assert run.code == 1
    assert "papers.yaml:1:10: error policy_invalid: there is only version 1" in run.err
    assert "papers.yaml:6:31: error policy_invalid: there is no group `reader`" in run.err
    assert "hint: did you mean `readers`?" in run.err
    found = json.loads(og("policy", "validate", "papers.yaml", "--json").out)
    assert [item["line"] for item in found["diagnostics"]] == [1, 6]


def test_all_policies_of_a_configuration_are_checked(og: Run, folder: Path) -> None:
    lines = og("policy", "validate", "--config", "serve.yaml").out.splitlines()
    assert [line.partition(" with ")[0].rpartition("/")[2] for line in lines] == [
        "server.yaml is valid: a policy of a server",
        "papers.yaml is valid: a policy of a graph",
    ]
    (folder / "server.yaml").write_text(PAPERS)
    run = og("policy", "validate", "--config", "serve.yaml")
    assert (run.code, "is about a graph" in run.err) == (1, True)


def test_cases_are_run(og: Run, folder: Path) -> None:
    run = og("policy", "test", "papers.yaml", "--tests", "cases.yaml")
    assert (run.code, run.out.splitlines()[-1]) == (0, "3 cases, 0 failed")
    (folder / "cases.yaml").write_text(CASES.replace("expect: deny", "expect: allow"))
    run = og(
        "policy", "test", "--config", "serve.yaml", "--graph", "papers", "--tests", "cases.yaml"
    )
    assert run.code == 1
    assert run.out.splitlines() == [
        "OK    bots read: allow: actor `act-bot` may read branch `main`: rule `everyone-reads` allows it",
        "FAIL  main is safe: expected allow, got deny: actor `act-ivo` may not change branch `main`, "
        "which is protected: no rule allows it",
        "OK    publish: allow: actor `act-ivo` may merge branch `d` into branch `main`: "
        "rule `curators-publish` allows it",
        "3 cases, 1 failed",
    ]
    run = og("policy", "test", "papers.yaml", "--tests", "cases.yaml", "--json")
    found = json.loads(run.out)
    assert (run.code, found["ok"], found["passed"], found["failed"]) == (1, False, 2, 1)
    assert found["cases"][1] == {
        "id": "main is safe",
        "passed": False,
        "expect": "allow",
        "decision": "deny",
        "rule": None,
        "message": found["cases"][1]["message"],
    }


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("version: 1", "version: 2", ":2:10: error policy_invalid: there is only version 1"),
        ("action: read", "action: look", "`look` is not an action"),
        ("expect: deny", "expect: maybe", "a case expects `allow` or `deny`, not `maybe`"),
        ("id: publish", "id: bots read", "the id 'bots read' is given twice"),
        ("id: publish, actor: act-ivo", "id: publish", "a case has no `actor`"),
        ("branch: d,", "brunch: d,", "`brunch` is no key of a case"),
        ("cases:", "casus:", "a file of cases has no `cases`"),
    ],
)
def test_wrong_cases_are_refused(og: Run, folder: Path, old: str, new: str, message: str) -> None:
    assert old in CASES
    (folder / "cases.yaml").write_text(CASES.replace(old, new))
    run = og("policy", "test", "papers.yaml", "--tests", "cases.yaml")
    assert run.code == 1
    assert message in run.err


def test_a_decision_is_explained(og: Run, folder: Path) -> None:
    words = ("policy", "explain", "papers.yaml", "--actor", "act-nadia", "--action")
    merge = og(*words, "branch_merge", "--branch", "d", "--target-branch", "main", "--json")
    assert json.loads(merge.out) == {
        "actor": "act-nadia",
        "action": "branch_merge",
        "branch": "d",
        "target_branch": "main",
        "decision": "allow",
        "rule": "curators-publish",
        "message": "actor `act-nadia` may merge branch `d` into branch `main`: "
        "rule `curators-publish` allows it",
    }
    denied = og(*words, "read", "--branch", "main")
    assert (denied.code, denied.out.startswith("deny: actor `act-nadia` may not read")) == (0, True)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("validate",), 2, "give exactly one of FILE and --config"),
        (("validate", "papers.yaml", "--config", "serve.yaml"), 2, "give exactly one of FILE"),
        (("validate", "papers.yaml", "--graph", "papers"), 2, "--graph chooses among"),
        (("validate", "missing.yaml"), 1, "cannot read missing.yaml"),
        (("validate", "--config", "serve.yaml", "--graph", "free"), 1, "`free` has no policy in"),
        (("validate", "--config", "serve.yaml", "--graph", "gone"), 1, "there is no graph `gone`"),
        (("explain", "papers.yaml", "--actor", "a", "--action", "reed"), 2, "did you mean `read`?"),
        (("explain", "papers.yaml", "--actor", "a"), 2, "--action"),
    ],
)
def test_wrong_arguments_are_told(
    og: Run, folder: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    run = og("policy", *words)
    assert run.code == code
    assert message in " ".join(run.err.split())
