"""What a look at the health of a graph found: findings, and the room that it takes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Health(StrEnum):
    """How bad a finding is; `warning` and `error` need somebody to act."""

    OK = "ok"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


#: The worst first.
_ORDER = (Health.ERROR, Health.WARNING, Health.INFO, Health.OK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that a check found."""

    check: str
    severity: Health
    message: str
    #: The command that helps; None when none does, or none is needed.
    action: str | None = None
    #: Whether stored files have to be restored before anything else is done.
    is_damage: bool = False

    def to_json(self) -> dict[str, object]:
        """The finding as a JSON object."""
        return {
            "check": self.check,
            "severity": str(self.severity),
            "message": self.message,
            "action": self.action,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskUse:
    """The room that one dataset takes, with all of its versions and forks."""

    type_key: str
    location: str
    size_bytes: int
    versions: int
    forks: int

    def to_json(self) -> dict[str, object]:
        """The use as a JSON object."""
        return {
            "type_key": self.type_key,
            "location": self.location,
            "size_bytes": self.size_bytes,
            "versions": self.versions,
            "forks": self.forks,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorReport:
    """Everything that was found, the worst first."""

    uri: str
    findings: tuple[Finding, ...]
    disk: tuple[DiskUse, ...] = ()
    #: The whole graph, with catalog and control files.
    size_bytes: int = 0
    #: What can be made again at any time: traversal and text indexes, and vectors of texts that were embedded.
    derived_bytes: int = 0

    @property
    def other_bytes(self) -> int:
        """What belongs to no type and cannot be made again: the catalog, the schema and control files."""
        types = sum(item.size_bytes for item in self.disk)
        # A writer may remove files between the looks at them.
        return max(0, self.size_bytes - types - self.derived_bytes)

    @property
    def is_healthy(self) -> bool:
        """Whether nobody has to act."""
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

    def to_json(self) -> dict[str, object]:
        """The report as a JSON object."""
        return {
            "uri": self.uri,
            "healthy": self.is_healthy,
            "findings": [item.to_json() for item in self.findings],
            "actions": list(self.actions),
            "disk": [item.to_json() for item in self.disk],
            "derived_bytes": self.derived_bytes,
            "total_bytes": self.size_bytes,
        }


def worst_first(findings: list[Finding]) -> tuple[Finding, ...]:
    """Findings in the order in which a person should read them; checks stay in their own order."""
    return tuple(sorted(findings, key=lambda item: _ORDER.index(item.severity)))
