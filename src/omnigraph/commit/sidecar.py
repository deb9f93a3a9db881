"""Sidecars: what a writer is about to do, and which state an interrupted write is in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from omnigraph.commit.notes import Metadata
from omnigraph.core.failpoints import Failpoint, reach
from omnigraph.core.ids import is_ulid
from omnigraph.core.validation import problems_of
from omnigraph.errors import RecoveryRequiredError
from omnigraph.frozen import frozen
from omnigraph.storage.location import RECOVERY_FOLDER, SCHEMA_FILES, check_dataset_path, check_fork_name
from omnigraph.storage.objects import ControlObjects

# ---- Sidecars
#
# One JSON file per writer in flight, named by the ULID of its operation. In steady state the folder is empty.
#
# A sidecar is input: it may come from a folder that was copied from elsewhere. So its models take paths and names
# only in the form in which this system makes them.


DatasetPath = Annotated[str, AfterValidator(check_dataset_path)]
ForkName = Annotated[str | None, AfterValidator(check_fork_name)]


class WriterKind(StrEnum):
    """The kind of a writer; every kind uses the same protocol."""

    INIT = "init"
    MUTATION = "mutation"
    LOAD = "load"
    EMBED = "embed"
    SCHEMA_APPLY = "schema_apply"
    BRANCH_MERGE = "branch_merge"
    ENSURE_INDICES = "ensure_indices"
    OPTIMIZE = "optimize"
    REPAIR = "repair"


#: Their steps keep the content of a table, so any of them may be published without the ones behind it.
LOOSE_KINDS = frozenset({WriterKind.ENSURE_INDICES, WriterKind.OPTIMIZE})


class _Stored(BaseModel):
    """A part of a sidecar: what it does not declare is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class SidecarTable(_Stored):
    """One table that the writer moves."""

    table_key: str
    incarnation: int
    table_path: DatasetPath
    table_branch: ForkName
    #: HEAD before the write.
    expected_version: int
    #: HEAD after it.
    post_commit_pin: int
    transaction_uuid: str
    #: All transactions of the write, one per version, the last one included; empty in sidecars of earlier releases.
    transaction_uuids: tuple[str, ...] = ()
    #: What the merge writer actually reached, once all of its tables are committed.
    confirmed_version: int | None = None


class PlannedCommit(_Stored):
    """The commit that the writer will publish."""

    commit_id: str
    parent_id: str | None
    merged_parent_id: str | None = None
    merge_strategy: str | None = None
    created_at: int
    message: str | None = None
    metadata: Metadata | None = None

    @model_serializer(mode="wrap")
    def _without_empty_notes(self, stored: SerializerFunctionWrapHandler) -> dict[str, object]:
        """Earlier releases refuse members that they do not know: they settle what a writer without a note left."""
        body: dict[str, object] = stored(self)
        return {key: value for key, value in body.items() if value is not None or key not in ("message", "metadata")}


class SidecarNewTable(_Stored):
    """One table that a schema change makes."""

    table_key: str
    incarnation: int
    table_path: DatasetPath
    transaction_uuid: str


class SidecarSchema(_Stored):
    """The effects of a schema change besides moved tables."""

    #: The schema that becomes the accepted one.
    schema_hash: str
    #: The three schema files by name.
    files: dict[str, str]
    new_tables: tuple[SidecarNewTable, ...] = ()
    #: Present key → the one it goes on under.
    renamed: dict[str, str]
    dropped: tuple[str, ...] = ()
    #: Datasets whose old versions go after the publish.
    purged_paths: tuple[DatasetPath, ...] = ()
    #: Datasets that go as a whole after the publish.
    removed_paths: tuple[DatasetPath, ...] = ()

    @model_validator(mode="after")
    def _check_files(self) -> Self:
        if set(self.files) != set(SCHEMA_FILES):
            raise ValueError(f"the schema files are {', '.join(SCHEMA_FILES)}")
        return self


class Sidecar(_Stored):
    """The intent of one writer."""

    format_version: Literal[1] = 1
    operation_id: str
    writer_kind: WriterKind
    actor: str | None
    branch: str
    branch_incarnation: int
    schema_hash: str
    commit: PlannedCommit
    tables: tuple[SidecarTable, ...]
    #: Set by schema changes only.
    schema_change: SidecarSchema | None = None

    @model_validator(mode="after")
    def _check_purged(self) -> Self:
        purged = () if self.schema_change is None else self.schema_change.purged_paths
        if not set(purged) <= {table.table_path for table in self.tables}:
            raise ValueError("only a table that the change moves can lose its old versions")
        return self

    @property
    def name(self) -> str:
        """The object that holds it."""
        return f"{RECOVERY_FOLDER}/{self.operation_id}.json"


def write_sidecar(objects: ControlObjects, sidecar: Sidecar) -> None:
    """Phase A: the intent is durable before anything moves."""
    reach(Failpoint.SIDECAR_WRITE)
    objects.write(sidecar.name, sidecar.model_dump_json(indent=1).encode())


def delete_sidecar(objects: ControlObjects, name: str) -> None:
    """Phase D."""
    reach(Failpoint.SIDECAR_DELETE)
    objects.delete(name)


def list_sidecars(objects: ControlObjects) -> list[str]:
    """The names of all sidecars, oldest first; temporary files of unfinished writes are invisible."""
    reach(Failpoint.RECOVERY_LIST)
    found = []
    for name in objects.names(RECOVERY_FOLDER):
        stem, _, ending = name.rpartition(".")
        if ending == "json" and is_ulid(stem):
            found.append(f"{RECOVERY_FOLDER}/{name}")
    return found


def read_sidecar(objects: ControlObjects, name: str) -> Sidecar | None:
    """The sidecar, or None when its writer finished meanwhile.

    Raises:
        RecoveryRequiredError: the file cannot be understood; it is kept for the operator.
    """
    stored = objects.read(name)
    if stored is None:
        return None
    operation_id = name.rpartition("/")[2].removesuffix(".json")
    try:
        sidecar = Sidecar.model_validate_json(stored.data)
    except ValidationError as error:
        problem = _first_problem(error, stored.data)
        raise RecoveryRequiredError(
            operation_id,
            f"{name} cannot be read (problems: {error.error_count()}; {problem}); nothing was touched; "
            "look at the file, and remove it only when you know that its writer did nothing",
            needs_operator=True,
        ) from error
    if sidecar.name != name:
        reason = f"{name} describes operation {sidecar.operation_id}; look at the file"
        raise RecoveryRequiredError(operation_id, reason, needs_operator=True)
    return sidecar


def _first_problem(error: ValidationError, data: bytes) -> str:
    try:
        content = json.loads(data)
    except ValueError:
        content = None
    return problems_of(error, content)[0].text("it")


# ---- The outcome of an interrupted write
#
# The shell in `sweep` gathers the facts and acts; nothing here reads or writes.


class TableClass(StrEnum):
    """The state of one table of a sidecar."""

    NO_MOVEMENT = "NoMovement"
    ROLLED_PAST_EXPECTED = "RolledPastExpected"
    UNEXPECTED_AT_P1 = "UnexpectedAtP1"
    UNEXPECTED_MULTISTEP = "UnexpectedMultistep"
    INCOMPLETE_PHASE_B = "IncompletePhaseB"
    INVARIANT_VIOLATION = "InvariantViolation"


class Decision(StrEnum):
    """The decision about a sidecar."""

    #: Its commit is published already: only the sidecar has to go.
    FINISH = "finish"
    ROLL_FORWARD = "roll_forward"
    #: Nothing moved: only the sidecar has to go.
    FORGET = "forget"
    ROLL_BACK = "roll_back"
    #: HEAD is behind the manifest: nothing may be changed.
    REFUSE = "refuse"


@frozen(kw_only=True)
class TableFacts:
    """One table as it is now. `head_version` is None when the dataset, or its branch, does not exist."""

    entry: SidecarTable
    #: The version that the manifest has published.
    pin_version: int
    head_version: int | None
    head_transaction: str | None
    #: The transactions of every version after the pin, where the sidecar names its own.
    moved_by: tuple[str | None, ...] = ()


def classify_table(kind: WriterKind, facts: TableFacts) -> TableClass:
    """Classify the state of one table."""
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
    kind: WriterKind, classes: Mapping[str, TableClass], *, is_published: bool, is_current: bool = True
) -> Decision:
    """Decide about a sidecar, from the classes of its tables.

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
