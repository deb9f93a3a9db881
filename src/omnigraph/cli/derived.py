"""Commands that follow from the catalogue: flags from the method of a graph, text from a renderer."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Annotated, Any, get_args

import typer

from omnigraph.api.graph_api import GraphApi
from omnigraph.api.operations import OPERATIONS, Operation
from omnigraph.cli.flags import AsJson, AsOf, Branch, GraphVersion, SnapshotId, Timeout, scoped
from omnigraph.cli.output import print_json, print_lines
from omnigraph.cli.scope import Address

Renderer = Callable[[Any], Iterable[str]]
_RENDERERS: dict[str, Renderer] = {}
#: Parameters that a command line does not give, or that have a flag of their own everywhere.
_NOT_FLAGS = frozenset({"self", "actor", "engine", "spark", "progress", "cancel"})
_SHARED = {"branch": Branch, "snapshot": SnapshotId, "version": GraphVersion, "as_of": AsOf, "timeout_s": Timeout}
#: What annotations of methods are made of, as far as a command line can give it.
_TYPES = {"Sequence": Sequence, "datetime": datetime}


def renders(operation_id: str) -> Callable[[Renderer], Renderer]:
    """Make a function the text of an operation: the lines that people read. Its docstring is the help."""

    def register(renderer: Renderer) -> Renderer:
        _RENDERERS[operation_id] = renderer
        return renderer

    return register


def derived_commands() -> Iterator[tuple[str, Callable[..., None]]]:
    """The commands of operations that name one, by their names."""
    for entry in OPERATIONS.values():
        if entry.command is not None:
            yield entry.command, _command(entry)


def _command(entry: Operation) -> Callable[..., None]:
    declared = inspect.signature(getattr(GraphApi, entry.call or "")).parameters
    own = [_flag(item) for name, item in declared.items() if name not in _NOT_FLAGS]

    def run(address: Address, *, json: bool, **values: Any) -> None:
        if entry.cost.writes:
            values["actor"] = address.actor
        with address.open(read_only=not entry.cost.writes) as graph:
            found = getattr(graph, entry.call or "")(**values)
        if json:
            whole = found if entry.member is None else entry.result_class(**{entry.member: found})
            print_json(whole.to_json())
        else:
            print_lines(_RENDERERS[entry.id](found))

    kind = inspect.Parameter.KEYWORD_ONLY
    address = inspect.Parameter("address", kind, annotation=Address)
    json = inspect.Parameter("json", kind, default=False, annotation=AsJson)
    run.__signature__ = inspect.Signature([address, *own, json])  # type: ignore[attr-defined]  # functions take it
    run.__doc__ = _RENDERERS[entry.id].__doc__
    has_arguments = any(item.default is inspect.Parameter.empty for item in own)
    return scoped(entry.command or "", positional=not has_arguments)(run)


def _flag(parameter: inspect.Parameter) -> inspect.Parameter:
    name = parameter.name
    is_required = parameter.default is inspect.Parameter.empty
    annotation = _SHARED.get(name)
    if annotation is None:
        type_ = _plain_type(str(parameter.annotation))
        info = (
            typer.Argument(metavar=name.upper())
            if is_required
            else typer.Option(f"--{name.replace('_', '-')}", show_default=False)
        )
        annotation = Annotated[type_, info]
    return parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=annotation)


def _plain_type(annotation: str) -> Any:
    """The type that a command line gives: lists for sequences, texts for moments."""
    type_ = eval(annotation, {"__builtins__": __builtins__, **_TYPES})  # annotations of `GraphApi`
    options = get_args(type_) or (type_,)
    if any(getattr(option, "__origin__", None) is Sequence for option in options):
        return list[str] | None
    return str | None if datetime in options else type_
