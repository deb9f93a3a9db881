"""Checks of `doctor` about what dead writers left: forks of no branch, files of no version, answers of no operation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.graph.diagnosis import Finding, Health
from omnigraph.recovery.forks import find_orphan_forks
from omnigraph.recovery.reclaim import find_abandoned_answers, staged_max_age_s
from omnigraph.recovery.retention import is_busy
from omnigraph.recovery.sweep import has_unsettled
from omnigraph.sizes import size_text
from omnigraph.storage.leftovers import find_leftovers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from omnigraph.recovery.environment import GraphEnvironment
    from omnigraph.storage.listing import StoredFile


@dataclass(frozen=True, slots=True)
class _Left:
    """What nothing refers to."""

    forks: frozenset[tuple[str, str]]
    files: frozenset[StoredFile]

    def without(self, other: _Left) -> _Left:
        return _Left(self.forks - other.forks, self.files - other.files)

    def __bool__(self) -> bool:
        return bool(self.forks or self.files)

    def __str__(self) -> str:
        size = sum(file.size_bytes for file in self.files)
        forks = "1 fork" if len(self.forks) == 1 else f"{len(self.forks):,} forks"
        files = "1 file" if len(self.files) == 1 else f"{len(self.files):,} files"
        return f"{forks} of no branch and {files} ({size_text(size)}) that nothing refers to"


def check_leftovers(
    environment: GraphEnvironment, paths: Iterable[str], cleanup: str
) -> Iterator[Finding]:
    """What `cleanup` would remove, and what may belong to a writer that is at work.

    When nobody writes or reads, everything that nothing refers to was left by the dead. Otherwise, and always on an
    object store, only its age tells.
    """
    datasets = list(paths)
    was_quiet = not _is_in_use(environment)
    everything = _find(environment, datasets, None)
    # Again: who began meanwhile has files among these.
    is_quiet = was_quiet and not _is_in_use(environment)
    left = everything if is_quiet else _find(environment, datasets, staged_max_age_s())
    young = everything.without(left)
    if left:
        yield Finding(check="leftovers", severity=Health.WARNING, message=str(left), action=cleanup)
    if young:
        days = staged_max_age_s() / 86_400
        yield Finding(
            check="leftovers",
            severity=Health.INFO,
            message=(
                f"{young}: they may belong to a writer or reader that is at work; `cleanup` removes what is left "
                f"{'when nobody is, or ' if environment.location.is_local else ''}at an age of {days:g} days "
                "(OMNIGRAPH_STAGED_MAX_AGE)"
            ),
        )
    if not left and not young:
        yield Finding(
            check="leftovers",
            severity=Health.OK,
            message="no forks or files that nothing refers to",
        )


def _is_in_use(environment: GraphEnvironment) -> bool:
    """Whether what nothing refers to may be needed: by a writer, by a reader, or by the recovery of a dead writer."""
    return is_busy(environment) or has_unsettled(environment)


def _find(environment: GraphEnvironment, paths: list[str], age_s: float | None) -> _Left:
    now_s = environment.clock() / 1_000_000
    files = [
        file
        for path in paths
        for file in find_leftovers(
            environment.location, path, older_than_s=age_s, now_s=now_s
        ).files
    ]
    answers = find_abandoned_answers(environment, age_s or 0.0, is_alone=age_s is None)
    forks = find_orphan_forks(environment, age_s)
    # What lies in a fork of no branch goes with it.
    folders = tuple(f"{path}/tree/{fork}/" for path, fork in forks)
    own = (file for file in files if not file.name.startswith(folders))
    return _Left(frozenset(forks), frozenset([*own, *answers]))
