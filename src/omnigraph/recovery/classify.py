"""What happened to an interrupted write: pure decisions from facts.

The shell in `sweep` gathers the facts and acts; nothing here reads or writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from omnigraph.recovery.sidecar import LOOSE_KINDS, SidecarTable, WriterKind

if TYPE_CHECKING:
    from collections.abc import Mapping


class TableClass(StrEnum):
    """What became of one table of a sidecar."""

    NO_MOVEMENT = "NoMovement"
    ROLLED_PAST_EXPECTED = "RolledPastExpected"
    UNEXPECTED_AT_P1 = "UnexpectedAtP1"
    UNEXPECTED_MULTISTEP = "UnexpectedMultistep"
    INCOMPLETE_PHASE_B = "IncompletePhaseB"
    INVARIANT_VIOLATION = "InvariantViolation"


class Decision(StrEnum):
    """What to do with a sidecar."""

    #: Its commit is published already: only the sidecar has to go.
    FINISH = "finish"
    ROLL_FORWARD = "roll_forward"
    #: Nothing moved: only the sidecar has to go.
    FORGET = "forget"
    ROLL_BACK = "roll_back"
    #: HEAD is behind the catalog: nobody may touch anything.
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """One table as it is now. `head_version` is None when the dataset, or its branch, does not exist."""

    entry: SidecarTable
    #: The version that the catalog has published.
    pin_version: int
    head_version: int | None
    head_transaction: str | None
    #: The transactions of every version after the pin, where the sidecar names its own.
    moved_by: tuple[str | None, ...] = ()


def classify_table(kind: WriterKind, facts: TableFacts) -> TableClass:
    """What became of one table."""
    head, pin, entry = facts.head_version, facts.pin_version, facts.entry
    if head is None or head < pin:
        return TableClass.INVARIANT_VIOLATION
    if head == pin:
        return TableClass.NO_MOVEMENT
    if kind in LOOSE_KINDS and _is_beginning(facts):
        return TableClass.ROLLED_PAST_EXPECTED
    if kind is WriterKind.BRANCH_MERGE:
        if entry.confirmed_version is None:
            return TableClass.INCOMPLETE_PHASE_B
        if head == entry.confirmed_version:
            return TableClass.ROLLED_PAST_EXPECTED
    elif head == entry.post_commit_pin and facts.head_transaction == entry.transaction_uuid:
        return TableClass.ROLLED_PAST_EXPECTED
    return TableClass.UNEXPECTED_AT_P1 if head == pin + 1 else TableClass.UNEXPECTED_MULTISTEP


def _is_beginning(facts: TableFacts) -> bool:
    """Whether nothing but the first steps of the write moved the table; sidecars of earlier releases do not tell."""
    own = facts.entry.transaction_uuids
    return not own or facts.moved_by == own[: len(facts.moved_by)]


def decide(
    kind: WriterKind,
    classes: Mapping[str, TableClass],
    *,
    is_published: bool,
    is_current: bool = True,
) -> Decision:
    """What to do with a sidecar, from the classes of its tables.

    `is_current` says that the branch is still where the write found it. Otherwise its expectations may not hold any
    more (its lease ended, and a successor wrote): it is never completed.
    """
    if is_published:
        return Decision.FINISH
    found = set(classes.values())
    if TableClass.INVARIANT_VIOLATION in found:
        return Decision.REFUSE
    if found <= {TableClass.NO_MOVEMENT}:
        return Decision.FORGET
    forward = {TableClass.ROLLED_PAST_EXPECTED}
    if kind in LOOSE_KINDS:
        # Tables that did not move simply stay out of the roll-forward.
        forward |= {TableClass.NO_MOVEMENT}
    return Decision.ROLL_FORWARD if is_current and found <= forward else Decision.ROLL_BACK
