"""`omnigraph queries`, `policy`, `graphs` and `mcp`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
from click.exceptions import Exit

from omnigraph.cli.command_line import Argument, Option
from omnigraph.cli.console import print_result
from omnigraph.cli.flags import AsJson, ConfigFile, ConfiguredGraph, OptionalSchemaFile, Quiet
from omnigraph.cli.scope import Address, storage_uri
from omnigraph.cli.scoped import CommandGroup, scoped
from omnigraph.cli.tables import counted
from omnigraph.core.extras import need_extra
from omnigraph.errors import BadRequestError
from omnigraph.errors.text import one_line

if TYPE_CHECKING:
    from omnigraph.lang.query.signature import FieldDescriptor
    from omnigraph.lang.schema.catalog import Catalog
    from omnigraph.policy.policy import CaseResult, Policy
    from omnigraph.policy.rules import Action
    from omnigraph.server.config import QuerySource, ServedGraph
    from omnigraph.server.stored_queries import CheckReport


# ---- `omnigraph queries`


queries_app = CommandGroup(help="List and check the stored queries of a server.")

QueryPath = Annotated[
    Path | None, Option("--queries", metavar="PATH", help="file or directory of queries, instead of --config")
]


@queries_app.register("list")
@scoped("queries list")
def list_queries(address: Address, config: ConfigFile = None, queries: QueryPath = None, json: AsJson = False) -> None:
    """List stored queries: kind, name, parameters, description, instruction, name as a tool.

    Those of a running server, as far as you may run them, or those of a configuration or of files.
    """
    entries = _entries(address, config, queries)
    print_result({"queries": entries}, _list_lines(entries) if entries else ["no stored queries"], json=json)


@queries_app.register("validate")
@scoped("queries validate")
def validate_queries(
    address: Address,
    config: ConfigFile = None,
    graph: ConfiguredGraph = None,
    queries: QueryPath = None,
    schema: OptionalSchemaFile = None,
    json: AsJson = False,
) -> None:
    """Check stored queries against the schema of their graph, or against a schema file.

    Prints what is wrong, then a total. Exits with 1 when a server would not serve the graph.
    """
    from omnigraph.server.stored_queries import check_files

    sources, served = _sources(config, graph, queries)
    report = check_files(sources, _catalog(served, address, schema))
    print_result(report, _report_lines(report), json=json)
    if not report.ok:
        raise Exit(1)


def _entries(address: Address, config: Path | None, queries: Path | None) -> list[dict[str, object]]:
    """The catalog of what the flags name."""
    from omnigraph.server.stored_queries import StoredQueries

    if config is None and queries is None:
        with address.open_served("stored queries are those of a server") as graph:
            return list(graph.queries())
    if address.is_named:
        raise click.BadParameter("give one of a server, --config FILE and --queries PATH")
    sources, _ = _sources(config, address.graph_id, queries)
    return StoredQueries.read(sources).to_json()


def _sources(
    config: Path | None, graph: str | None, queries: Path | None
) -> tuple[tuple[QuerySource, ...], ServedGraph | None]:
    """The sources that the flags name, and the graph when a configuration names it."""
    from omnigraph.server.config import query_sources, read_config

    if queries is not None and config is None:
        if graph is not None:
            raise click.BadParameter("--graph chooses among the graphs of --config")
        return query_sources(queries), None
    if config is None or queries is not None:
        raise click.BadParameter("give exactly one of --config FILE and --queries PATH")
    served = read_config(config).graph(graph)
    return served.queries, served


def _catalog(served: ServedGraph | None, address: Address, schema: Path | None) -> Catalog:
    from omnigraph.lang.schema.compiler import compile_schema_file

    if sum((served is not None, address.is_explicit, schema is not None)) > 1:
        raise click.BadParameter("give one of --config, a graph and --schema to check against")
    if schema is not None:
        return compile_schema_file(schema).catalog
    if served is None and not address.is_explicit:
        raise click.BadParameter("nothing to check against: give a graph or --schema FILE")
    from omnigraph.graph.graph import Graph

    store = address.uri if served is None else storage_uri(served.store, "the graph")
    with Graph.open(store, read_only=True) as graph:
        return graph.catalog()


def _list_lines(entries: Iterable[Mapping[str, object]]) -> Iterator[str]:
    from omnigraph.api.answers import StoredQueryEntry

    for entry in map(StoredQueryEntry.from_json, entries):
        kind = "mutation" if entry.mutation else "read"
        yield f"{kind:<8} {entry.name}({', '.join(map(_parameter, entry.params))})"
        labelled = {"": entry.description, "instruction: ": entry.instruction, "tool: ": entry.tool_name}
        yield from (f"         {label}{one_line(text)}" for label, text in labelled.items() if text is not None)


def _parameter(param: FieldDescriptor) -> str:
    size = param.item_kind or param.vector_dim
    of = "" if size is None else f" of {size}"
    return f"{param.name}: {param.kind}{of}{'?' if param.nullable else ''}"


def _report_lines(report: CheckReport) -> Iterator[str]:
    for finding in (*report.breakages, *report.warnings):
        yield finding.diagnostic.render()
    if report.unlisted:
        yield f"… and {counted(report.unlisted, 'more breakage', form='d')}"
    queries, breakages = (
        counted(report.queries, "query", "queries", form="d"),
        counted(report.total, "breakage", form="d"),
    )
    yield f"{queries}, {breakages}, {counted(len(report.warnings), 'warning', form='d')}"


# ---- `omnigraph policy`


policy_app = CommandGroup(help="Check, test and ask policy files.")

PolicyFile = Annotated[Path | None, Argument(metavar="FILE", help="policy file, instead of --config")]


@policy_app.register("validate")
@scoped("policy validate")
def validate_policy(
    file: PolicyFile = None, config: ConfigFile = None, graph: ConfiguredGraph = None, json: AsJson = False
) -> None:
    """Compile a policy and count its actors; with --config alone every policy that the configuration names."""
    if file is None and config is not None and graph is None:
        found = _policies(config)
    else:
        found = [_policy(file, config, graph)]
    document = {"policies": [_summary(path, policy) for path, policy in found]}
    print_result(document, (_summary_line(path, policy) for path, policy in found), json=json)


@policy_app.register("test")
@scoped("policy test")
def run_cases_of_policy(
    tests: Annotated[Path, Option("--tests", metavar="FILE", help="cases with their answers", show_default=False)],
    file: PolicyFile = None,
    config: ConfigFile = None,
    graph: ConfiguredGraph = None,
    json: AsJson = False,
) -> None:
    """Ask a policy every case of a file. Exits with 1 when an answer is not the expected one."""
    from omnigraph.policy.policy import read_cases, run_cases

    _, policy = _policy(file, config, graph)
    results = run_cases(policy, read_cases(tests))
    failed = sum(not result.passed for result in results)
    counts = {"ok": not failed, "passed": len(results) - failed, "failed": failed}
    document = {**counts, "cases": [result.to_json() for result in results]}
    print_result(document, _result_lines(results, failed), json=json)
    if failed:
        raise Exit(1)


@policy_app.register("explain")
@scoped("policy explain")
def explain_policy(
    actor: Annotated[str, Option("--actor", metavar="ID", help="who asks", show_default=False)],
    action: Annotated[str, Option("--action", metavar="ACTION", help="what for", show_default=False)],
    file: PolicyFile = None,
    config: ConfigFile = None,
    graph: ConfiguredGraph = None,
    branch: Annotated[
        str | None, Option("--branch", metavar="NAME", help="branch that is read, changed or merged")
    ] = None,
    target_branch: Annotated[
        str | None,
        Option("--target-branch", metavar="NAME", help="branch that is created, deleted, merged into or gets a schema"),
    ] = None,
    json: AsJson = False,
) -> None:
    """Say whether an actor may do something, by which rule, and why not."""
    from omnigraph.policy.rules import PolicyRequest

    request = PolicyRequest(actor, _action(action), branch, target_branch)
    _, policy = _policy(file, config, graph)
    decision = policy.decide(request)
    document = {
        "actor": actor,
        "action": str(request.action),
        "branch": request.branch,
        "target_branch": request.target_branch,
        "decision": decision.word,
        "rule": decision.rule,
        "message": decision.message,
    }
    print_result(document, [f"{decision.word}: {decision.message}"], json=json)


def _policy(file: Path | None, config: Path | None, graph: str | None) -> tuple[Path, Policy]:
    """The one policy that the arguments name."""
    from omnigraph.policy.policy import Policy

    if (file is None) == (config is None):
        raise click.BadParameter("give exactly one of FILE and --config FILE")
    if file is not None:
        if graph is not None:
            raise click.BadParameter("--graph chooses among the graphs of --config")
        return file, Policy.from_file(file)
    from omnigraph.server.config import read_config

    assert config is not None, "one of the two is given"
    served = read_config(config).graph(graph)
    if served.policy is None:
        raise BadRequestError(f"graph `{served.graph_id}` has no policy in {config}")
    return served.policy, _read(served.policy, is_server=False)


def _policies(config: Path) -> list[tuple[Path, Policy]]:
    """Every policy of a configuration, the one of the server first."""
    from omnigraph.server.config import read_config

    read = read_config(config)
    files = [(read.policy, True), *((graph.policy, False) for graph in read.graphs)]
    found = [(path, _read(path, is_server=is_server)) for path, is_server in dict.fromkeys(files) if path is not None]
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
    from omnigraph.core.source import did_you_mean
    from omnigraph.policy.rules import Action

    try:
        return Action(name)
    except ValueError:
        words = [str(word) for word in Action]
        hint = did_you_mean(name, words) or f"known are {', '.join(words)}"
        raise click.BadParameter(f"there is no action `{name}`: {hint}") from None


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
    actors, groups = counted(policy.actors, "actor", form="d"), counted(len(policy.rules.groups), "group", form="d")
    rules = counted(len(policy.rules.rules), "rule", form="d")
    return f"{path} is valid: a policy of {about} with {actors}, {groups}, {rules}"


def _result_lines(results: Sequence[CaseResult], failed: int) -> Iterator[str]:
    for result in results:
        word = "OK" if result.passed else "FAIL"
        expected = "" if result.passed else f"expected {result.expected}, got "
        yield f"{word:<5} {result.case.id}: {expected}{result.decision.word}: {result.decision.message}"
    yield f"{counted(len(results), 'case', form='d')}, {failed} failed"


# ---- `omnigraph graphs`


graphs_app = CommandGroup(help="See which graphs a server serves.")


@graphs_app.register("list")
@scoped("graphs list")
def list_graphs(address: Address, json: AsJson = False) -> None:
    """List the graphs of a server, sorted by id."""
    graphs = address.served_graphs()
    width = max((len(graph["graph_id"]) for graph in graphs), default=0)
    lines = [f"{graph['graph_id']:<{width}}  {graph['uri']}" for graph in graphs]
    print_result({"graphs": graphs}, lines or ["no graphs"], json=json)


# ---- `omnigraph mcp`


#: The actor of an agent that is not named.
_AGENT = "agent"


@scoped("mcp")
def mcp(
    address: Address,
    write: Annotated[bool, Option("--write", help="offer the tools that write as well")] = False,
    policy: Annotated[
        Path | None, Option("--policy", metavar="FILE", help="offer what a policy allows to the actor")
    ] = None,
    queries: Annotated[
        Path | None, Option("--queries", metavar="PATH", help="stored queries as tools, a file or directory")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Serve a graph to an agent over standard input and output (MCP).

    The program of the agent starts this command. Its tools are those of a server; without --write or --policy they
    only read. Standard output carries nothing but the protocol.
    """
    need_extra("server", "`omnigraph mcp`")
    # Late: they need what was just looked for.
    from omnigraph.server.boot import open_for_actor
    from omnigraph.server.config import single_graph
    from omnigraph.server.mcp_stdio import own_output, serve_lines
    from omnigraph.server.responses import configure_logs
    from omnigraph.server.settings import ServerSettings

    if write and policy is not None:
        raise click.BadParameter("give one of --write and --policy")
    configure_logs(level=logging.WARNING)
    graph = single_graph(address.uri, queries=queries).graph()
    rights, settings = _rights(policy, write=write), ServerSettings.from_environment()
    service, token = open_for_actor(graph, address.actor or _AGENT, rights, settings)
    with service, own_output() as wire:
        address.echo("serve to an agent", quiet=quiet)
        serve_lines(service, token, sys.stdin.buffer, wire)


def _rights(policy: Path | None, *, write: bool) -> Policy:
    from omnigraph.policy.policy import Policy
    from omnigraph.policy.rules import Action

    if policy is not None:
        return Policy.from_file(policy)
    reading = [Action.READ, Action.INVOKE_QUERY]
    return Policy.allowing("agent", [item for item in Action if not item.is_for_server] if write else reading)
