"""Creating and deleting branches: one head row each, under the commit lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.errors import BadRequestError, BranchNotFoundError
from omnigraph.failpoints import Failpoint, reach
from omnigraph.ids import check_branch_name, is_ulid
from omnigraph.manifest.branching import branch_at, check_new_branch, deleted_branch, free_fork_name
from omnigraph.manifest.pins import check_pins
from omnigraph.manifest.rows import MAIN
from omnigraph.manifest.snapshot import snapshot_of
from omnigraph.manifest.targets import Target, resolve_target
from omnigraph.recovery.forks import reclaim_forks_quietly
from omnigraph.recovery.sweep import settle_all

if TYPE_CHECKING:
    from omnigraph.manifest.rows import Head
    from omnigraph.manifest.snapshot import Snapshot
    from omnigraph.manifest.state import ManifestState
    from omnigraph.recovery.environment import GraphEnvironment


def create_branch(environment: GraphEnvironment, name: str, base: str, actor: str | None) -> None:
    """Create a branch."""

    def make_head(state: ManifestState, graph_version: int) -> Head:
        check_new_branch(state, name)
        origin = find_base(environment, state, base)
        reach(Failpoint.BEFORE_BRANCH_PUBLISH)
        return branch_at(origin, name, graph_version, free_fork_name(state, name), actor)

    with environment.window() as held:
        settle_all(held)
        held.publish_branch(make_head)
        reach(Failpoint.AFTER_BRANCH_PUBLISH)


def find_base(environment: GraphEnvironment, state: ManifestState, base: str) -> Snapshot:
    """Where a branch begins: the head of a branch, or a commit of any branch.

    Raises:
        BranchNotFoundError: there is no such branch.
        NotFoundError: there is no such commit.
        BadRequestError: the commit has another schema than the graph has now.
        HistoricalVersionReclaimedError: its data was cleaned up.
    """
    base = base.strip()
    if base in state.heads:
        return snapshot_of(state.heads[base])
    if not is_ulid(base):
        raise BranchNotFoundError(check_branch_name(base))
    origin = resolve_target(environment.manifest, state, Target(snapshot=base))
    if origin.schema_hash != state.head(MAIN).schema_hash:
        raise BadRequestError(
            f"commit {base} has an older schema than the graph: a branch cannot begin there"
        )
    # Under the commit lock, as a cleanup is: what is there now stays, because the branch holds it from here on.
    check_pins(environment.tables, origin.pins.values())
    return origin


def delete_branch(
    environment: GraphEnvironment, name: str, actor: str | None, expected: Head | None = None
) -> None:
    """Delete a branch, or only the one that is expected: first it stops to exist, then its forks go."""

    def make_head(state: ManifestState, graph_version: int) -> Head:
        head = deleted_branch(state, name, graph_version, actor, expected)
        reach(Failpoint.BEFORE_BRANCH_PUBLISH)
        return head

    with environment.window() as held:
        settle_all(held)
        held.publish_branch(make_head)
        reach(Failpoint.AFTER_BRANCH_PUBLISH)
    reclaim_forks_quietly(environment)
