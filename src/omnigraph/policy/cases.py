"""Tests of a policy: files of requests with the answer that is expected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.policy.reading import CODE, check_version, read_action, unique_id
from omnigraph.policy.requests import Decision, PolicyRequest

if TYPE_CHECKING:
    from collections.abc import Iterable
    from os import PathLike

    from omnigraph.policy.policy import Policy
    from omnigraph.yaml_files import YamlValue

_ANSWERS = ("allow", "deny")


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyCase:
    """One request and the answer that is expected."""

    id: str
    request: PolicyRequest
    is_allowed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """What the policy said about a case."""

    case: PolicyCase
    decision: Decision

    @property
    def passed(self) -> bool:
        """Whether it said what was expected."""
        return self.decision.allowed == self.case.is_allowed

    @property
    def expected(self) -> str:
        """`allow` or `deny`."""
        return _ANSWERS[not self.case.is_allowed]

    def to_json(self) -> dict[str, object]:
        """The result as a JSON object."""
        return {
            "id": self.case.id,
            "passed": self.passed,
            "expect": self.expected,
            "decision": self.decision.word,
            "rule": self.decision.rule,
            "message": self.decision.message,
        }


def read_cases(path: str | PathLike[str]) -> tuple[PolicyCase, ...]:
    """The cases of a YAML file: `version: 1`, `cases: [{id, actor, action, branch?, target_branch?, expect}]`.

    Raises:
        InputFileError: the file cannot be read.
        ConfigurationError: it is wrong; `diagnostics` holds every finding with its place.
    """
    from omnigraph.yaml_files import YamlDocument

    document = YamlDocument.read(str(path), code=CODE)
    names = ("version", "cases")
    members = document.root.members("a file of cases", known=names, required=names)
    check_version(members.get("version"))
    items = members["cases"].items("`cases`") if "cases" in members else []
    ids: set[str] = set()
    cases = [_case(item, ids) for item in items]
    document.raise_errors()
    return tuple(case for case in cases if case is not None)


def run_cases(policy: Policy, cases: Iterable[PolicyCase]) -> list[CaseResult]:
    """What a policy says about every case, in order."""
    return [CaseResult(case=case, decision=policy.decide(case.request)) for case in cases]


def _case(item: YamlValue, ids: set[str]) -> PolicyCase | None:
    needed = ("id", "actor", "action", "expect")
    members = item.members("a case", known=(*needed, "branch", "target_branch"), required=needed)
    name = unique_id(members.get("id"), "a case", ids)
    texts = {
        key: members[key].text(f"`{key}`")
        for key in ("actor", "branch", "target_branch", "expect")
        if key in members
    }
    action = read_action(members["action"]) if "action" in members else None
    expect = texts.get("expect")
    if expect is not None and expect not in _ANSWERS:
        members["expect"].error(f"a case expects `allow` or `deny`, not `{expect}`")
    if name is None or action is None or expect not in _ANSWERS:
        return None
    request = PolicyRequest(
        texts.get("actor"), action, texts.get("branch"), texts.get("target_branch")
    )
    return PolicyCase(id=name, request=request, is_allowed=expect == "allow")
