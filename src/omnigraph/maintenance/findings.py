"""Findings of the doctor, its report, and what its checks read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Annotated, ClassVar

from omnigraph.codec import HIDDEN, Document, Key
from omnigraph.commit.environment import GraphEnvironment
from omnigraph.commit.rows import TablePin
from omnigraph.commit.snapshot import History, ManifestState
from omnigraph.commit.targets import open_pin
from omnigraph.errors import DamageError, OmniError
from omnigraph.frozen import frozen
from omnigraph.maintenance.retention import type_keys
from omnigraph.storage.datasets.tables import Table
from omnigraph.storage.datasets.versions import DatasetListing, list_versions

# ---- What the doctor reports: findings and disk use


class Health(StrEnum):
    """How bad a finding is; `warning` and `error` need an action."""

    OK = "ok"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


#: The worst first.
_ORDER = (Health.ERROR, Health.WARNING, Health.INFO, Health.OK)


@frozen
class Finding(Document):
    """One thing that a check found."""

    check: str = field(default="", kw_only=True)
    severity: Health
    message: str
    #: The command that helps; None when none does, or none is needed.
    action: str | None = None
    #: Whether stored files have to be restored before anything else is done.
    is_damage: Annotated[bool, HIDDEN] = field(default=False, kw_only=True)


@frozen(kw_only=True)
class DiskUse(Document):
    """The disk use of one dataset, with all of its versions and forks."""

    type_key: str
    location: str
    size_bytes: int
    versions: int
    forks: int


@frozen(kw_only=True)
class DoctorReport(Document):
    """Everything that was found, the worst first."""

    computed: ClassVar[Mapping[str, str]] = {"is_healthy": "uri", "actions": "findings"}

    uri: str
    findings: tuple[Finding, ...]
    disk: tuple[DiskUse, ...] = ()
    #: What can be made again at any time: traversal and text indexes, and vectors of texts that were embedded.
    derived_bytes: int = 0
    #: The whole graph, with manifest and control files.
    size_bytes: Annotated[int, Key("total_bytes")] = 0

    @property
    def other_bytes(self) -> int:
        """What belongs to no type and cannot be made again: the manifest, the schema and control files."""
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
    disk: list[DiskUse] = field(default_factory=list)
    size_bytes: int = 0
    derived_bytes: int = 0

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
