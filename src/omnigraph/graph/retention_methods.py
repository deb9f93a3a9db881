"""The retention half of the façade: what is removed, and whether a graph is healthy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.graph.opened import OpenGraph
from omnigraph.policy.rules import Action

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import timedelta

    from omnigraph.graph.diagnosis import DoctorReport
    from omnigraph.graph.verification import VerifyReport
    from omnigraph.pipeline.progress import Progress
    from omnigraph.recovery.cleanup_report import CleanupReport


class RetentionMethods(OpenGraph):
    """What keeps an open graph small and healthy."""

    def cleanup(
        self,
        *,
        keep: int | None = None,
        older_than: str | timedelta | None = None,
        commits: bool = False,
        confirm: bool = False,
        actor: str | None = None,
    ) -> CleanupReport:
        """Remove old versions and leftovers; without `confirm` only say what would go.

        Readable stay the newest `keep` commits of every branch, and every state that a branch had within `older_than`
        (`45s`, `30m`, `12h`, `7d`, `2w`); with both, what either of them keeps. Heads, the points at which branches
        began and what merges of branches can need stay always. `keep` is at least 3. With `commits`, commits that
        cannot be read any more leave the history as well. Where the graph has a policy, `actor` needs the right
        `admin` for a confirmed one; a preview is a read.

        >>> import tempfile
        >>> from omnigraph import Graph
        >>> graph = Graph.init(tempfile.mkdtemp() + "/papers.omni", "node Paper { doi: String @key }")
        >>> for number in range(5):
        ...     receipt = graph.mutate('query add($d: String) { insert Paper { doi: $d } }', {"d": str(number)})
        >>> graph.cleanup(keep=3).old_versions_removed
        3
        >>> graph.cleanup(keep=3, confirm=True).confirmed
        True

        Raises:
            BadRequestError: nothing says what to keep, or the graph is open for reading only.
            PolicyDeniedError: the policy of the graph does not allow it; nothing was removed.
            RecoveryRequiredError: an interrupted write cannot be settled; nothing was removed.
            RetryableCommitConflictError: writers kept the graph busy; try again.
        """
        from omnigraph.graph.cleaning import cleanup_call
        from omnigraph.recovery.cleanup import clean_up

        call = cleanup_call(keep, older_than, commits=commits, confirm=confirm)
        if confirm:
            self._require_writable()
            self._authorize(Action.ADMIN, actor)
        return clean_up(self._environment, call)

    def verify(
        self,
        *,
        branches: Collection[str] | None = None,
        record: bool = False,
        actor: str | None = None,
        progress: Progress | None = None,
    ) -> VerifyReport:
        """Read every file that a readable state needs, and compare it with the checksum that its writer recorded.

        All branches and every commit that is kept, or the heads of some branches only. Everything is decoded, in a
        process of its own, so that no damage can end this one. Changes nothing; memory does not follow the size.

        Files of earlier releases have no checksum. With `record` they get one, unless some file is damaged: from then
        on they are compared with what they hold now.

        >>> import tempfile
        >>> from omnigraph import Graph
        >>> graph = Graph.init(tempfile.mkdtemp() + "/papers.omni", "node Paper { doi: String @key }")
        >>> graph.verify().is_sound
        True

        Raises:
            BranchNotFoundError: there is no such branch.
            NotFoundError: there is no graph, and no part of one.
        """
        from omnigraph.graph.verifying import verify_graph
        from omnigraph.pipeline.progress import Silent

        if record:
            self._require_writable()
            self._authorize(Action.ADMIN, actor)
        return verify_graph(
            self._environment, branches=branches, progress=progress or Silent(), record=record
        )

    def doctor(self, *, deep: bool = False, progress: Progress | None = None) -> DoctorReport:
        """Whether the graph is healthy, and what to run when it is not. Changes nothing and takes no lock.

        Looks at the storage format, the catalog, schema files, heads, addresses and links, interrupted writes, the
        commit lock, indexes, fragments, leftovers and disk use; each on its own, so that one that fails is a finding.
        With `deep` every file is read as well, as `verify` does it.

        >>> import tempfile
        >>> from omnigraph import Graph
        >>> graph = Graph.init(tempfile.mkdtemp() + "/papers.omni", "node Paper { doi: String @key }")
        >>> graph.doctor().is_healthy
        True
        """
        from omnigraph.graph.doctor import examine

        return examine(self._environment, deep=deep, progress=progress)
