"""Commands that follow from the catalogue: flags from the method and entry of an operation, text from a renderer."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Annotated, TypeVar

import typer

from omnigraph.api.graph_api import GraphApi
from omnigraph.api.operation import Flag, Operation
from omnigraph.api.operations import OPERATIONS
from omnigraph.cli.flags import (
    AsJson,
    AsOf,
    Branch,
    Consent,
    EngineChoice,
    GraphVersion,
    Quiet,
    SnapshotId,
    Timeout,
    WorkerName,
    refuse_address,
    scoped,
)
from omnigraph.cli.output import print_json, print_lines, terminal_progress
from omnigraph.cli.scope import Address

_Result = TypeVar("_Result")
_RENDERERS: dict[str, Callable[..., Iterable[str]]] = {}
#: Parameters that a command line does not give.
_NOT_FLAGS = frozenset({"self", "actor", "spark", "progress", "cancel"})
#: Parameters that have the same flag in every command.
_SHARED = {
    "branch": Branch,
    "snapshot": SnapshotId,
    "version": GraphVersion,
    "as_of": AsOf,
    "engine": EngineChoice,
    "timeout_s": Timeout,
}
_EMPTY = inspect.Parameter.empty


def derived(operation_id: str) -> Callable[[Callable[[_Result], Iterable[str]]], Callable[..., None]]:
    """Make a renderer the command of its operation: it gives the lines that people read, its docstring is the help."""
    entry = OPERATIONS[operation_id]
    assert entry.command is not None, "its entry says how it is called"
    command, call = entry.command, entry.call or ""
    declared = inspect.signature(getattr(GraphApi, call)).parameters

    def decorate(renderer: Callable[[_Result], Iterable[str]]) -> Callable[..., None]:
        def run(address: Address, *, json: bool, yes: bool = False, quiet: bool = False, **values: object) -> None:
            if "actor" in declared:
                values["actor"] = address.actor
            if values.get("engine", WorkerName.AUTO) is not WorkerName.AUTO:
                address.refuse_on_server("--engine")
            if command.loss is not None:
                address.require_consent(command.loss.format(**values), yes=yes, json=json)
            if entry.cost.writes:
                address.echo(f"{command.name} in", quiet=quiet)
            if "progress" in declared:
                values["progress"] = terminal_progress(quiet=quiet)
            with address.open(read_only=not entry.cost.writes) as graph:
                found = getattr(graph, call)(**values)
            if json:
                document = found if entry.member is None else entry.result_class(**{entry.member: found})
                print_json(document.to_json())
            else:
                print_lines(renderer(found))

        run.__signature__ = inspect.Signature(list(_parameters(entry, declared)))  # type: ignore[attr-defined]  # functions take it
        run.__doc__ = renderer.__doc__
        _RENDERERS[operation_id] = renderer
        return scoped(command.name, positional=command.is_positional)(run)

    return decorate


def _parameters(entry: Operation, declared: Mapping[str, inspect.Parameter]) -> Iterator[inspect.Parameter]:
    assert entry.command is not None
    flags = entry.command.flags
    names = dict.fromkeys([*flags, *(name for name in declared if name not in _NOT_FLAGS)])
    own = [_parameter(declared[name], flags.get(name)) for name in names]
    yield from (item for item in own if item.default is _EMPTY)
    yield _keyword("address", Address, _EMPTY)
    yield from (item for item in own if item.default is not _EMPTY)
    if entry.command.loss is not None:
        yield _keyword("yes", Consent, False)
    if entry.cost.writes:
        yield _keyword("quiet", Quiet, False)
    yield _keyword("json", AsJson, False)


def _parameter(declared: inspect.Parameter, flag: Flag | None) -> inspect.Parameter:
    """A parameter of the method as an argument if it is required, else as a flag."""
    name, default = declared.name, declared.default
    if flag is None:
        return _keyword(name, _SHARED[name], WorkerName(default) if name == "engine" else default)
    if default is _EMPTY:
        info = typer.Argument(metavar=flag.metavar, help=flag.help, callback=refuse_address)
        return _keyword(name, Annotated[str, info], default)
    option = typer.Option(flag.spelling or f"--{name.replace('_', '-')}", metavar=flag.metavar, help=flag.help)
    if flag.choices:
        choice = StrEnum(name, flag.choices) | None  # type: ignore[operator]  # this makes a class
        return _keyword(name, Annotated[choice, option], default)
    return _keyword(name, Annotated[str | None if default is None else type(default), option], default)


def _keyword(name: str, annotation: object, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
