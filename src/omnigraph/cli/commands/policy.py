"""`omnigraph policy`: policy files, checked, tested and asked before a server uses them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.options import AsJson, ConfigFile, ConfiguredGraph
from omnigraph.cli.output import print_json, print_lines, print_text
from omnigraph.cli.scoped import scoped
from omnigraph.errors import BadRequestError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from omnigraph.policy.cases import CaseResult
    from omnigraph.policy.policy import Policy
    from omnigraph.policy.rules import Action

app = typer.Typer(
    help="Check, test and ask policy files.", no_args_is_help=True, rich_markup_mode=None
)

PolicyFile = Annotated[
    Path | None, typer.Argument(metavar="FILE", help="policy file, instead of --config")
]


@app.command("validate")
@scoped("policy validate")
def validate_policy(
    file: PolicyFile = None,
    config: ConfigFile = None,
    graph: ConfiguredGraph = None,
    json: AsJson = False,
) -> None:
    """Compile a policy and count its actors; with --config alone every policy that the configuration names."""
    if file is None and config is not None and graph is None:
        found = _policies(config)
    else:
        found = [_policy(file, config, graph)]
    if json:
        print_json({"policies": [_summary(path, policy) for path, policy in found]})
    else:
        print_lines(_summary_line(path, policy) for path, policy in found)


@app.command("test")
@scoped("policy test")
def run_cases_of_policy(
    tests: Annotated[
        Path,
        typer.Option(
            "--tests", metavar="FILE", help="cases with their answers", show_default=False
        ),
    ],
    file: PolicyFile = None,
    config: ConfigFile = None,
    graph: ConfiguredGraph = None,
    json: AsJson = False,
) -> None:
    """Ask a policy every case of a file. Exits with 1 when an answer is not the expected one."""
    from omnigraph.policy.cases import read_cases, run_cases

    _, policy = _policy(file, config, graph)
    results = run_cases(policy, read_cases(tests))
    failed = sum(not result.passed for result in results)
    if json:
        counts = {"ok": not failed, "passed": len(results) - failed, "failed": failed}
        print_json({**counts, "cases": [result.to_json() for result in results]})
    else:
        print_lines(_result_lines(results, failed))
    if failed:
        raise typer.Exit(1)


@app.command("explain")
@scoped("policy explain")
def explain_policy(
    actor: Annotated[
        str, typer.Option("--actor", metavar="ID", help="who asks", show_default=False)
    ],
    action: Annotated[
        str, typer.Option("--action", metavar="ACTION", help="what for", show_default=False)
    ],
    file: PolicyFile = None,
    config: ConfigFile = None,
    graph: ConfiguredGraph = None,
    branch: Annotated[
        str | None,
        typer.Option("--branch", metavar="NAME", help="branch that is read, changed or merged"),
    ] = None,
    target_branch: Annotated[
        str | None,
        typer.Option(
            "--target-branch",
            metavar="NAME",
            help="branch that is created, deleted, merged into or gets a schema",
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Say whether an actor may do something, by which rule, and why not."""
    from omnigraph.policy.requests import PolicyRequest

    request = PolicyRequest(actor, _action(action), branch, target_branch)
    _, policy = _policy(file, config, graph)
    decision = policy.decide(request)
    if json:
        print_json(
            {
                "actor": actor,
                "action": str(request.action),
                "branch": request.branch,
                "target_branch": request.target_branch,
                "decision": decision.word,
                "rule": decision.rule,
                "message": decision.message,
            }
        )
    else:
        print_text(f"{decision.word}: {decision.message}")


def _policy(file: Path | None, config: Path | None, graph: str | None) -> tuple[Path, Policy]:
    """The one policy that the arguments name."""
    from omnigraph.policy.policy import Policy

    if (file is None) == (config is None):
        raise typer.BadParameter("give exactly one of FILE and --config FILE")
    if file is not None:
        if graph is not None:
            raise typer.BadParameter("--graph chooses among the graphs of --config")
        return file, Policy.from_file(file)
    from omnigraph.serving.config import read_config

    assert config is not None, "one of the two is given"
    served = read_config(config).graph(graph)
    if served.policy is None:
        raise BadRequestError(f"graph `{served.graph_id}` has no policy in {config}")
    return served.policy, _read(served.policy, is_server=False)


def _policies(config: Path) -> list[tuple[Path, Policy]]:
    """Every policy of a configuration, the one of the server first."""
    from omnigraph.serving.config import read_config

    read = read_config(config)
    files = [(read.policy, True), *((graph.policy, False) for graph in read.graphs)]
    found = [
        (path, _read(path, is_server=is_server))
        for path, is_server in dict.fromkeys(files)
        if path is not None
    ]
    if not found:
        raise BadRequestError(f"{config} names no policy")
    return found


def _read(path: Path, *, is_server: bool) -> Policy:
    """A policy that fits the place where a configuration names it."""
    from omnigraph.policy.policy import Policy

    policy = Policy.from_file(path)
    if not (policy.is_for_server if is_server else policy.is_for_graph):
        about, given = ("a graph", "the server") if is_server else ("a server", "a graph")
        raise BadRequestError(f"{path} is about {about}, and the configuration gives it to {given}")
    return policy


def _action(name: str) -> Action:
    from omnigraph.policy.rules import Action
    from omnigraph.syntax.suggest import did_you_mean

    try:
        return Action(name)
    except ValueError:
        words = [str(word) for word in Action]
        hint = did_you_mean(name, words) or f"known are {', '.join(words)}"
        raise typer.BadParameter(f"there is no action `{name}`: {hint}") from None


def _summary(path: Path, policy: Policy) -> dict[str, object]:
    rules = policy.rules
    return {
        "file": str(path),
        "about": "graph" if policy.is_for_graph else "server",
        "actors": policy.actors,
        "groups": len(rules.groups),
        "rules": len(rules.rules),
        "protected_branches": sorted(rules.protected_branches),
    }


def _summary_line(path: Path, policy: Policy) -> str:
    about = "a graph" if policy.is_for_graph else "a server"
    counts = [
        _count(policy.actors, "actor"),
        _count(len(policy.rules.groups), "group"),
        _count(len(policy.rules.rules), "rule"),
    ]
    return f"{path} is valid: a policy of {about} with {', '.join(counts)}"


def _result_lines(results: Sequence[CaseResult], failed: int) -> Iterator[str]:
    for result in results:
        word = "OK" if result.passed else "FAIL"
        expected = "" if result.passed else f"expected {result.expected}, got "
        yield f"{word:<5} {result.case.id}: {expected}{result.decision.word}: {result.decision.message}"
    yield f"{_count(len(results), 'case')}, {failed} failed"


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
