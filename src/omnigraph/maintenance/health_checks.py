"""Checks of `doctor`: leftovers, meaning, and place of a graph."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Annotated, ClassVar

from omnigraph.codec import HIDDEN, Document, Key
from omnigraph.commit.environment import GraphEnvironment
from omnigraph.commit.leftovers import staged_max_age_s
from omnigraph.commit.lineage import disordered, doubled
from omnigraph.commit.rebasing import find_foreign_versions, recorded_root
from omnigraph.commit.rows import TablePin
from omnigraph.commit.schemas import GraphSchema, find_schema
from omnigraph.commit.snapshot import History, ManifestState
from omnigraph.commit.sweep import has_unsettled
from omnigraph.commit.targets import open_pin
from omnigraph.errors import DamageError, OmniError
from omnigraph.errors.text import size_text
from omnigraph.maintenance.cleanup_plan import find_leftovers, is_busy
from omnigraph.maintenance.repair import dangling_edges
from omnigraph.maintenance.retention import KEEP_ADVISED, type_keys
from omnigraph.storage.datasets.tables import Table
from omnigraph.storage.datasets.versions import DatasetListing, list_versions
from omnigraph.storage.listing import StoredFile
from omnigraph.storage.location import GraphLocation, walk

# ---- What the doctor reports: findings and disk use


class Health(StrEnum):
    """How bad a finding is; `warning` and `error` need an action."""

    OK = "ok"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


#: The worst first.
_ORDER = (Health.ERROR, Health.WARNING, Health.INFO, Health.OK)


@dataclass(frozen=True, slots=True)
class Finding(Document):
    """One thing that a check found."""

    check: str = field(default="", kw_only=True)
    severity: Health
    message: str
    #: The command that helps; None when none does, or none is needed.
    action: str | None = None
    #: Whether stored files have to be restored before anything else is done.
    is_damage: Annotated[bool, HIDDEN] = field(default=False, kw_only=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskUse(Document):
    """The disk use of one dataset, with all of its versions and forks."""

    type_key: str
    location: str
    size_bytes: int
    versions: int
    forks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorReport(Document):
    """Everything that was found, the worst first."""

    computed: ClassVar[Mapping[str, str]] = {"is_healthy": "uri", "actions": "findings"}

    uri: str
    findings: tuple[Finding, ...]
    disk: tuple[DiskUse, ...] = ()
    #: What can be made again at any time: traversal and text indexes, and vectors of texts that were embedded.
    derived_bytes: int = 0
    #: The whole graph, with catalog and control files.
    size_bytes: Annotated[int, Key("total_bytes")] = 0

    @property
    def other_bytes(self) -> int:
        """What belongs to no type and cannot be made again: the catalog, the schema and control files."""
        types = sum(item.size_bytes for item in self.disk)
        # A writer may remove files between the looks at them.
        return max(0, self.size_bytes - types - self.derived_bytes)

    @property
    def is_healthy(self) -> Annotated[bool, Key("healthy")]:
        """Whether no action is needed."""
        return not any(item.severity in (Health.WARNING, Health.ERROR) for item in self.findings)

    @property
    def is_damaged(self) -> bool:
        """Whether stored files have to be restored."""
        return any(item.is_damage for item in self.findings)

    @property
    def actions(self) -> tuple[str, ...]:
        """The commands to run for what needs action, in the order of the findings.

        While files are damaged only those for the damage: other commands would work on what cannot be read.
        """
        is_damaged = self.is_damaged
        wanted = (
            item.action
            for item in self.findings
            if (item.is_damage or not is_damaged)
            and item.severity in (Health.WARNING, Health.ERROR)
            and item.action is not None
        )
        return tuple(dict.fromkeys(wanted))


def worst_first(findings: list[Finding]) -> tuple[Finding, ...]:
    """Findings in the order in which a person should read them; checks stay in their own order."""
    return tuple(sorted(findings, key=lambda item: _ORDER.index(item.severity)))


# ---- What the checks of a graph's health read, each thing once


@dataclass
class Inspection:
    """What several checks need, read once; what fails fails for each of them."""

    environment: GraphEnvironment

    def __post_init__(self) -> None:
        self.disk: list[DiskUse] = []
        self.size_bytes = 0
        self.derived_bytes = 0

    @cached_property
    def state(self) -> ManifestState:
        """The branches and what they read."""
        return self.environment.manifest.state()

    @cached_property
    def history(self) -> History:
        """All commits."""
        return self.environment.manifest.history()

    @cached_property
    def names(self) -> Mapping[str, str]:
        """The types by the datasets that hold them."""
        return type_keys(self.history)

    @cached_property
    def listings(self) -> Mapping[str, DatasetListing]:
        """The datasets that live branches read; the check of heads reports those that cannot be listed."""
        found = {}
        for path in sorted({path for path, _ in self.state.lines()}):
            try:
                found[path] = list_versions(self.environment.location, path)
            except OmniError:
                continue
        return found

    def open(self, pin: TablePin) -> Table:
        """The table at a pin."""
        return open_pin(self.environment.tables, pin)

    def failure(self, error: OmniError, message: str) -> Finding:
        """What a check could not look at."""
        is_damage = isinstance(error, DamageError)
        return self.damage(message) if is_damage else Finding(Health.ERROR, message)

    def damage(self, message: str) -> Finding:
        """Stored files that have to be restored."""
        return Finding(Health.ERROR, message, self.run("verify"), is_damage=True)

    def run(self, command: str, options: str = "") -> str:
        """A command for this graph, to be copied."""
        words = ["omnigraph", command, self.environment.location.uri, options]
        return " ".join(word for word in words if word)


# ---- Checks of `doctor` about what dead writers left: forks of no branch, files of no version, answers of no
#      operation


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


def check_leftovers(look: Inspection) -> Iterator[Finding]:
    """What `cleanup` would remove, and what may belong to a writer that is at work.

    Without writers and readers, everything that nothing refers to was left by writers that died. Otherwise, and always
    on an object store, only its age tells.
    """
    environment, max_age_s = look.environment, staged_max_age_s()
    was_quiet = not _is_in_use(environment)
    everything = _Left(*find_leftovers(environment, look.listings, None))
    # Again: a writer that began meanwhile has files among these.
    is_quiet = was_quiet and not _is_in_use(environment)
    left = everything
    if not is_quiet:
        left = _Left(*find_leftovers(environment, look.listings, max_age_s))
    young = everything.without(left)
    if left:
        cleanup = look.run("cleanup", f"--keep {KEEP_ADVISED} --confirm")
        yield Finding(Health.WARNING, str(left), cleanup)
    if young:
        quiet = "when none is, or " if environment.location.is_local else ""
        yield Finding(
            Health.INFO,
            f"{young}: they may belong to a writer or reader that is at work; `cleanup` removes what is left {quiet}"
            f"at an age of {max_age_s / 86_400:g} days (OMNIGRAPH_STAGED_MAX_AGE)",
        )


def _is_in_use(environment: GraphEnvironment) -> bool:
    """Whether what nothing refers to may be needed: by a writer, by a reader, or by the recovery of a dead writer."""
    return is_busy(environment) or has_unsettled(environment)


# ---- Whether what a graph says makes sense: a history without circles, and edges between nodes that exist


#: Findings of one kind that are reported one by one.
_SHOWN = 10


def check_history(look: Inspection) -> Iterator[Finding]:
    """Commits that are there twice, and circles: whatever walks along the history would not come to an end."""
    twice = sorted(doubled(look.environment.manifest.commit_rows()))
    for commit_id in twice[:_SHOWN]:
        message = f"commit {commit_id} is in the catalog more than once"
        yield Finding(Health.ERROR, message, look.run("repair", "--confirm"))
    wrong = [commit for commit in disordered(look.history.commits) if commit not in twice]
    for commit_id in wrong[:_SHOWN]:
        yield Finding(
            Health.ERROR,
            f"commit {commit_id} builds on one that is not older: restore the catalog from a backup",
        )


def check_edges(look: Inspection) -> Iterator[Finding]:
    """Edges without one of their ends. Reads the ids of all nodes and the ends of all edges."""
    environment = look.environment

    def schema_of(schema_hash: str) -> GraphSchema:
        return find_schema(environment.objects, environment.manifest, schema_hash)

    found, unchecked = dangling_edges(environment, schema_of)
    for failed in unchecked:
        what = f"{failed.type_key} of branch {failed.branch} cannot be checked"
        yield look.failure(failed.error, f"{what}: {failed.error.message}")
    for item in found:
        edges = "1 edge" if item.count == 1 else f"{item.count:,} edges"
        examples = ", ".join(item.examples)
        message = f"{item.type_key} of branch {item.branch} has {edges} without an end: {examples}"
        yield Finding(Health.ERROR, message, look.run("repair", "--confirm"))


# ---- Checks of `doctor` about where a graph lies: addresses of another root, and links that lead out of it


_SHOWN_LINKS = 3


def check_place(look: Inspection) -> Iterator[Finding]:
    """Whether everything that the graph refers to lies below its root.

    Raises:
        OutsideRootError: a version of a fork reads files outside of its dataset.
    """
    environment = look.environment
    foreign = find_foreign_versions(environment)
    if foreign:
        message = (
            f"the graph was copied or moved: {len(foreign):,} versions of branches hold the address of another "
            f"root, such as {foreign[0]}; they are read here all the same"
        )
        if recorded_root(environment.objects) != environment.location.root:
            message += ", and the next open for writing corrects them"
        yield Finding(Health.INFO, message)
    if links := _find_links(environment.location):
        yield Finding(
            Health.WARNING,
            f"{len(links):,} links below the root, such as {', '.join(links[:_SHOWN_LINKS])}, are not followed: "
            "put what they lead to in their place, or remove them",
        )


def _find_links(location: GraphLocation) -> list[str]:
    """The links below the root, sorted; empty on an object store, which has none."""
    if not location.is_local:
        return []
    found = (entry.path for entry in walk(location, "") if entry.is_symlink())
    return sorted(os.path.relpath(path, location.uri) for path in found)
