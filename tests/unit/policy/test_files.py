"""Policy files: everything that can be wrong with one is said, with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.errors import ConfigurationError, InputFileError
from omnigraph.policy.policy import Policy
from support.policies import PAPERS
from support.subtests import each_case

GROUPS = "version: 1\ngroups: { all: [ada] }\n"


def rule(allow: str, *, id_: str = "r") -> str:
    return f"{GROUPS}rules:\n  - id: {id_}\n    allow: {{ {allow} }}\n"


def findings(text: str) -> list[tuple[int, int, str]]:
    with pytest.raises(ConfigurationError) as refused:
        Policy.from_text(text, "p.yaml")
    assert {item.file for item in refused.value.diagnostics} == {"p.yaml"}
    return [(item.line, item.column, item.message) for item in refused.value.diagnostics]


ALL = "actors: { group: all }"


@each_case(
    ("text", "line", "column", "message"),
    [
        ("version: 2", 1, 10, "there is only version 1 of this file format"),
        ("version: '1'", 1, 10, "`version` is a whole number, not the text `1`"),
        ("version: 1.0", 1, 10, "`version` is a whole number, not the value `1.0`"),
        ("groups: {}", 1, 1, "a policy has no `version`"),
        ("", 1, 1, "a policy is a mapping, not nothing"),
        ("- version: 1", 1, 1, "a policy is a mapping, not a list"),
        ("version: [", 1, 11, "this is no YAML"),
        ("version: 1\nversion: 1", 2, 1, "the key `version` is given twice"),
        ("version: 1\nrulez: []", 2, 1, "`rulez` is no key of a policy"),
        ("version: 1\ngroups: { all: [] }", 2, 16, "group `all` is empty"),
        ("version: 1\ngroups: { all: ada }", 2, 16, "group `all` is a list, not the text `ada`"),
        ("version: 1\ngroups: { all: [ada, ' '] }", 2, 22, "an actor is blank"),
        ("version: 1\ngroups: { all: [17] }", 2, 17, "an actor is a text, not the value `17`"),
        ("version: 1\ngroups: { ' ': [ada] }", 2, 11, "the name of a group is blank"),
        ('version: 1\ngroups: { "\\uD800": [ada] }', 2, 11, "the name of a group is blank or"),
        ('version: 1\ngroups: { all: ["\\uD800"] }', 2, 17, "an actor holds half a surrogate pair"),
        ("version: 1\nprotected_branches: main", 2, 21, "`protected_branches` is a list"),
        (
            "version: 1\nprotected_branches: ['release/*']",
            2,
            22,
            "'release/*' is not a branch name",
        ),
        ("version: 1\nprotected_branches: ['']", 2, 22, "a protected branch is blank"),
        (rule(f"{ALL}, actions: [read]", id_="' '"), 4, 9, "the id of a rule is blank"),
        (f"{GROUPS}rules: [{{ id: r }}]", 3, 9, "a rule has no `allow`"),
        (
            f"{GROUPS}rules: [{{ id: r, allow: {{}}, deny: {{}} }}]",
            3,
            29,
            "`deny` is no key of a rule",
        ),
        (rule("actions: [read]"), 5, 12, "`allow` has no `actors`"),
        (rule(ALL), 5, 12, "`allow` has no `actions`"),
        (rule(f"{ALL}, actions: []"), 5, 47, "the rule allows no action"),
        (rule(f"{ALL}, actions: [reed]"), 5, 48, "`reed` is not an action"),
        (rule("actors: { group: al }, actions: [read]"), 5, 31, "there is no group `al`"),
        (rule("actors: { actor: ada }, actions: [read]"), 5, 24, "`actor` is no key of `actors`"),
        (rule("actors: ada, actions: [read]"), 5, 22, "`actors` is a mapping, not the text `ada`"),
        (
            rule(f"{ALL}, actions: [read], branch_scope: all"),
            5,
            69,
            "`all` is not a scope",
        ),
        (
            rule(f"{ALL}, actions: [read], branch_scope: any, target_branch_scope: any"),
            5,
            74,
            "a rule has `branch_scope` or `target_branch_scope`, not both",
        ),
        (
            rule(f"{ALL}, actions: [read, branch_merge], branch_scope: any"),
            5,
            69,
            "`branch_merge` has no `branch_scope`",
        ),
        (
            rule(f"{ALL}, actions: [change], target_branch_scope: any"),
            5,
            57,
            "`change` has no `target_branch_scope`",
        ),
        (
            rule(f"{ALL}, actions: [invoke_query], branch_scope: any"),
            5,
            63,
            "`invoke_query` has no `branch_scope`",
        ),
        (
            rule(f"{ALL}, actions: [admin], target_branch_scope: any"),
            5,
            56,
            "`admin` has no `target_branch_scope`",
        ),
        (
            rule(f"{ALL}, actions: [graph_list], branch_scope: any"),
            5,
            61,
            "`graph_list` has no `branch_scope`",
        ),
        (
            rule(f"{ALL}, actions: [read, graph_list]"),
            5,
            47,
            "`graph_list` is about a server, and the other actions are about a graph",
        ),
        (
            rule(f"{ALL}, actions: [read]")
            + rule(f"{ALL}, actions: [read]").partition("rules:\n")[2],
            6,
            9,
            "the id 'r' is given twice",
        ),
        (
            rule(f"{ALL}, actions: [read]")
            + rule(f"{ALL}, actions: [graph_list]", id_="s").partition("rules:\n")[2],
            6,
            5,
            "rules about a server (`graph_list`) and rules about a graph are in one file",
        ),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, line: int, column: int, message: str) -> None:
    found = findings(text)
    assert any(item[:2] == (line, column) and item[2].startswith(message) for item in found), found


def test_all_mistakes_of_a_file_are_reported_at_once() -> None:
    text = """\
version: 3
groups: { empty: [] }
protected_branches: [a b]
rules:
  - id: one
    allow: { actors: { group: nobody }, actions: [fly], branch_scope: some }
"""
    assert [line for line, _, _ in findings(text)] == [1, 2, 3, 6, 6, 6]


def test_a_near_word_is_offered() -> None:
    with pytest.raises(ConfigurationError) as refused:
        Policy.from_text(rule("actors: { group: all }, actions: [branch_mege]"))
    assert refused.value.diagnostics[0].hint == "did you mean `branch_merge`?"
    assert refused.value.diagnostics[0].code == "policy_invalid"


def test_aliases_that_hold_themselves_end() -> None:
    assert findings("version: 1\ngroups: &g { all: *g }")
    assert findings("version: 1\nrules: &r [*r]")


def test_a_policy_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "papers.yaml"
    path.write_text(PAPERS, encoding="utf-8")
    assert Policy.from_file(path).actors == 3
    with pytest.raises(InputFileError, match=r"missing\.yaml"):
        Policy.from_file(tmp_path / "missing.yaml")
    path.write_bytes(b"version: \xff")
    with pytest.raises(ConfigurationError, match="not UTF-8"):
        Policy.from_file(path)
