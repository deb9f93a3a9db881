"""The magic `%%gq` of notebooks: queries in cells, with Python variables as parameters. `%load_ext omnigraph.notebook`.

Owns: the magic, and nothing that a graph cannot do without it. IPython calls this module; it is never imported here.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from omnigraph.api.graph_api import GraphApi
from omnigraph.errors import BadRequestError
from omnigraph.frozen import frozen
from omnigraph.lang.query.compiler import compile_query

if TYPE_CHECKING:
    from omnigraph.api.results import MutationResult
    from omnigraph.api.rows import Result
    from omnigraph.display.pictures import Picture

_USAGE = "%%gq [GRAPH] [--branch NAME] [--snapshot COMMIT] [--into VARIABLE] [--show]"


class Shell(Protocol):
    """What is used of IPython."""

    user_ns: dict[str, Any]

    def register_magic_function(self, func: object, magic_kind: str, magic_name: str) -> None:
        """Make a function a magic."""
        ...


def load_ipython_extension(shell: Shell) -> None:
    """Register the magic; `%load_ext omnigraph.notebook` calls it."""

    def gq(line: str, cell: str | None = None) -> Result | MutationResult | Picture:
        """Run a query or a mutation, in a cell (`%%gq`) or in a line (`%gq`).

        %%gq [GRAPH] [--branch NAME] [--snapshot COMMIT] [--into VARIABLE] [--show]

        GRAPH is a variable that holds a graph; without it the only such variable is meant. Parameters take their values
        from the variables of the same names. --into keeps the result in a variable, --show draws what was matched.
        """
        call = read_call(line, cell, shell.user_ns)
        result = call.run(shell.user_ns)
        if call.into is not None:
            shell.user_ns[call.into] = result
        return result

    # `$p` and `{ … }` are the query's: IPython would put variables in their place.
    gq._ipython_magic_no_var_expand = True  # type: ignore[attr-defined]
    shell.register_magic_function(gq, "line_cell", "gq")


@frozen(kw_only=True)
class Call:
    """One use of the magic."""

    graph: GraphApi
    text: str
    branch: str = "main"
    snapshot: str | None = None
    into: str | None = None
    shows: bool = False

    def run(self, variables: Mapping[str, Any]) -> Result | MutationResult | Picture:
        """Run the query on its graph."""
        catalog = self.graph.catalog(self.branch, snapshot=self.snapshot)
        compiled = compile_query(self.text, catalog)
        params = {item.name: variables[item.name] for item in compiled.ir.params if item.name in variables}
        if self.shows:
            return self.graph.show(self.text, params, branch=self.branch, snapshot=self.snapshot)
        if not compiled.is_mutation:
            return self.graph.query(self.text, params, branch=self.branch, snapshot=self.snapshot)
        if self.snapshot is not None:
            raise BadRequestError("a mutation changes a branch: leave out --snapshot")
        return self.graph.mutate(self.text, params, branch=self.branch)


def read_call(line: str, cell: str | None, variables: Mapping[str, Any]) -> Call:
    """The call that a line, and the cell below it, describe.

    Raises:
        BadRequestError: it is not a use of the magic, or no graph is found.
    """
    rest, options = line.strip(), dict[str, Any]()
    graph = None
    first = rest.partition(" ")[0]
    if isinstance(variables.get(first), GraphApi):
        graph, rest = variables[first], rest[len(first) :].lstrip()
    while rest.startswith("--"):
        name, _, rest = rest[2:].partition(" ")
        if name == "show":
            options["shows"] = True
        elif name in ("branch", "snapshot", "into"):
            value, _, rest = rest.lstrip().partition(" ")
            options[name] = "".join(shlex.split(value))
        else:
            raise BadRequestError(f"there is no option --{name}: {_USAGE}")
        rest = rest.lstrip()
    if cell is not None and rest:
        raise BadRequestError(f"`{rest}` is neither a variable with a graph nor an option: {_USAGE}")
    return Call(graph=graph or _only_graph(variables), text=rest if cell is None else cell, **options)


def _only_graph(variables: Mapping[str, Any]) -> GraphApi:
    # `_`, `_3` and `Out` hold what was shown before.
    found = {name: item for name, item in variables.items() if isinstance(item, GraphApi) and not name.startswith("_")}
    graphs = list({id(item): item for item in found.values()}.values())
    if len(graphs) == 1:
        return graphs[0]
    if graphs:
        raise BadRequestError(f"several variables hold graphs, name one, as in `%%gq {min(found)}`: {', '.join(found)}")
    raise BadRequestError('no variable holds a graph: open one first, as in graph = Graph.open("people.omni")')
