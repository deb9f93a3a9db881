"""Prepared reads: checked once, run often."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from omnigraph.commit.read_target import Target
from omnigraph.core.lazy_exports import late_types
from omnigraph.core.source import SourceText
from omnigraph.errors import QuerySelectionError

if TYPE_CHECKING:
    from omnigraph.api.rows import Result
    from omnigraph.core.budget import CancelSignal
    from omnigraph.core.types import PropertyType
    from omnigraph.lang.query.compiler import CompiledQuery
    from omnigraph.lang.query.ir import ReadIR
else:
    globals().update(
        late_types(
            {
                "omnigraph.api.rows": "Result",
                "omnigraph.core.budget": "CancelSignal",
                "omnigraph.core.types": "PropertyType",
                "omnigraph.lang.query.compiler": "CompiledQuery",
                "omnigraph.lang.query.ir": "ReadIR",
            }
        )
    )

#: Runs a read: its parameters, `timeout_s` and `cancel`.
Run: TypeAlias = "Callable[[Mapping[str, object] | None, float | None, CancelSignal | None], Result]"


class PreparedRead:
    """A read that was checked once, and runs whenever it is called, as in `read({"year": 2021}, timeout_s=5)`.

    Thread-safe. Every call looks up the state that `target` means, so that one of a branch sees its newest commit.
    When the accepted schema changed since, the text is checked again with that call, which raises `CompilerError`
    where it does not fit any more. It holds nothing of its graph, and nothing has to be closed: it works as long as
    its graph does.
    """

    def __init__(self, run: Run, query: ReadIR, target: Target) -> None:
        self._run = run
        self.name = query.name
        self.target = target
        #: The names of the columns, and their types in the languages of the graph, when it was prepared.
        self.columns = [item.name for item in query.projections]
        self.types: tuple[PropertyType, ...] = tuple(item.type for item in query.projections)
        #: The types of the parameters by name, when it was prepared.
        self.params: Mapping[str, PropertyType] = {item.name: item.type for item in query.params}

    def __call__(
        self,
        params: Mapping[str, object] | None = None,
        *,
        timeout_s: float | None = None,
        cancel: CancelSignal | None = None,
    ) -> Result:
        """Run it; parameters, limits and failures are those of `query`."""
        return self._run(params, timeout_s, cancel)

    def __repr__(self) -> str:
        taken = ", ".join(f"${name}: {type_}" for name, type_ in self.params.items())
        return f"<PreparedRead {self.name}({taken}) on {self.target}: {', '.join(self.columns)}>"


def read_of(compiled: CompiledQuery) -> ReadIR:
    """The read that a compiled query is.

    Raises:
        QuerySelectionError: it is a mutation.
    """
    # Lazy: a client that only sends texts compiles none.
    from omnigraph.lang.query import ir

    if isinstance(compiled.ir, ir.ReadIR):
        return compiled.ir
    raise QuerySelectionError(f"`{compiled.name}` is a mutation: run it with `mutate`", (compiled.name,))


def refuse_command(text: str | SourceText) -> None:
    """Refuse to prepare a statement about the graph.

    Raises:
        QuerySelectionError: the text is one.
    """
    from omnigraph.lang.query.syntax.commands import command_of

    command = command_of(text)
    if command is not None:
        raise QuerySelectionError(f"`{command.name}` is not a read that can be prepared", (command.name,))
