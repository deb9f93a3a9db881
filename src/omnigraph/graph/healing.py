"""Healing what no interrupted write explains: commits that are in the catalog twice, and edges without their ends.

Both were possible on object stores in releases that let a writer publish after it had lost the commit lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.graph.dangling import DanglingEdges, UncheckedEdges, find_dangling
from omnigraph.manifest.expectations import Expectations
from omnigraph.manifest.lineage import doubled
from omnigraph.manifest.pins import open_pin
from omnigraph.recovery.attempt import Intent, StagedTable, commit_write
from omnigraph.recovery.sidecar import WriterKind
from omnigraph.recovery.sweep import settle_all
from omnigraph.storage.forks import create_fork
from omnigraph.storage.staged import stage_delete

if TYPE_CHECKING:
    from collections.abc import Callable

    from omnigraph.graph.schemas import GraphSchema
    from omnigraph.manifest.rows import GraphCommit, Head
    from omnigraph.recovery.environment import GraphEnvironment


def heal_history(environment: GraphEnvironment, *, confirm: bool) -> tuple[str, ...]:
    """Keep of every doubled commit the row that was published first; the ids. Runs inside the window."""
    found = doubled(environment.manifest.commit_rows())
    if found and confirm:
        environment.manifest.restore_commits(found.values(), tenure=environment.tenure)
    return tuple(sorted(found))


def dangling_edges(
    environment: GraphEnvironment, schema_of: Callable[[str], GraphSchema]
) -> tuple[tuple[DanglingEdges, ...], tuple[UncheckedEdges, ...]]:
    """The edges without their ends at the heads of all branches, and types that cannot be read. Takes no lock."""
    passed: set[tuple[object, ...]] = set()
    found: list[DanglingEdges | UncheckedEdges] = []
    for _, head in sorted(environment.manifest.state().heads.items()):
        catalog = schema_of(head.schema_hash).catalog
        found += find_dangling(head, catalog, lambda pin: open_pin(environment.tables, pin), passed)
    return (
        tuple(item for item in found if isinstance(item, DanglingEdges)),
        tuple(item for item in found if isinstance(item, UncheckedEdges)),
    )


def remove_dangling(
    environment: GraphEnvironment, schema_of: Callable[[str], GraphSchema], actor: str | None
) -> list[GraphCommit]:
    """Remove edges without their ends, in one commit per branch."""
    commits = []
    with environment.window() as held:
        settle_all(held)
        for _, head in sorted(held.manifest.state().heads.items()):
            catalog = schema_of(head.schema_hash).catalog
            looked = find_dangling(head, catalog, lambda pin: open_pin(held.tables, pin))
            found = [item for item in looked if isinstance(item, DanglingEdges)]
            if found:
                commits.append(_remove(held, head, found, actor))
    return commits


def _remove(
    environment: GraphEnvironment, head: Head, found: list[DanglingEdges], actor: str | None
) -> GraphCommit:
    staged = []
    with environment.staging.shared():
        for item in found:
            pin = head.pins[item.type_key]
            table = open_pin(environment.tables, pin)
            if pin.branch != head.fork_name:
                assert head.fork_name is not None, "main owns its tables"
                table = create_fork(
                    environment.location,
                    table,
                    head.fork_name,
                    check_lock=environment.tenure.check,
                )
            write = stage_delete(table, item.addresses.tolist())
            assert write is not None, "there are rows to remove"
            staged.append(
                StagedTable(table_key=item.type_key, incarnation=pin.incarnation, staged=write)
            )
        expectations = Expectations(
            branch=head.branch,
            incarnation=head.incarnation,
            schema_hash=head.schema_hash,
            touched={item.type_key: head.pins[item.type_key].version for item in found},
            exact_head=head.commit_id,
        )
        intent = Intent(kind=WriterKind.REPAIR, expectations=expectations, actor=actor)
        return commit_write(environment, intent, staged)
