from __future__ import annotations

from itertools import combinations

from omnigraph.commit.sidecar import (
    Decision,
    TableClass,
    TableFacts,
    WriterKind,
    classify_table,
    decide,
)
from support.sidecars import entry
from support.subtests import each_case

EXACT = [
    WriterKind.INIT,
    WriterKind.MUTATION,
    WriterKind.LOAD,
    WriterKind.EMBED,
    WriterKind.SCHEMA_APPLY,
    WriterKind.REPAIR,
]
LOOSE = [WriterKind.ENSURE_INDICES, WriterKind.OPTIMIZE]
MERGE = [WriterKind.BRANCH_MERGE]

OURS, FOREIGN = "uuid-ours", "uuid-foreign"
NO_MOVEMENT = TableClass.NO_MOVEMENT
EXPECTED = TableClass.ROLLED_PAST_EXPECTED
AT_P1 = TableClass.UNEXPECTED_AT_P1
MULTISTEP = TableClass.UNEXPECTED_MULTISTEP
INCOMPLETE = TableClass.INCOMPLETE_PHASE_B
VIOLATION = TableClass.INVARIANT_VIOLATION

#: Pin 4; HEAD, its transaction, the confirmed version → the class, per group of writers.
TABLE = [
    (None, None, None, VIOLATION, VIOLATION, VIOLATION),
    (3, OURS, None, VIOLATION, VIOLATION, VIOLATION),
    (3, OURS, 3, VIOLATION, VIOLATION, VIOLATION),
    (4, FOREIGN, None, NO_MOVEMENT, NO_MOVEMENT, NO_MOVEMENT),
    (4, OURS, 5, NO_MOVEMENT, NO_MOVEMENT, NO_MOVEMENT),
    (5, OURS, None, EXPECTED, EXPECTED, INCOMPLETE),
    (5, FOREIGN, None, AT_P1, EXPECTED, INCOMPLETE),
    (5, None, None, AT_P1, EXPECTED, INCOMPLETE),
    (6, OURS, None, MULTISTEP, EXPECTED, INCOMPLETE),
    (6, FOREIGN, None, MULTISTEP, EXPECTED, INCOMPLETE),
    (5, OURS, 5, EXPECTED, EXPECTED, EXPECTED),
    (5, OURS, 6, EXPECTED, EXPECTED, AT_P1),
    (6, FOREIGN, 6, MULTISTEP, EXPECTED, EXPECTED),
    (7, FOREIGN, 6, MULTISTEP, EXPECTED, MULTISTEP),
]
CELLS = [
    (kind, head, transaction, confirmed, expected)
    for head, transaction, confirmed, *classes in TABLE
    for kinds, expected in zip((EXACT, LOOSE, MERGE), classes, strict=True)
    for kind in kinds
]


@each_case(("kind", "head", "transaction", "confirmed", "expected"), CELLS)
def test_a_table_is_classified_by_its_head_against_its_pin(
    kind, head, transaction, confirmed, expected
):
    facts = TableFacts(
        entry=entry(confirmed=confirmed),
        pin_version=4,
        head_version=head,
        head_transaction=transaction,
    )
    assert classify_table(kind, facts) is expected


@each_case(
    ("head", "transaction", "expected"),
    [
        (4, FOREIGN, NO_MOVEMENT),
        (5, FOREIGN, AT_P1),
        (6, FOREIGN, MULTISTEP),
        (7, OURS, EXPECTED),
        (7, FOREIGN, MULTISTEP),
        (8, OURS, MULTISTEP),
    ],
)
@each_case("kind", EXACT)
def test_a_write_of_several_versions_counts_only_when_its_last_one_is_there(
    kind, head, transaction, expected
):
    facts = TableFacts(
        entry=entry().model_copy(update={"post_commit_pin": 7}),
        pin_version=4,
        head_version=head,
        head_transaction=transaction,
    )
    assert classify_table(kind, facts) is expected


def test_every_writer_kind_is_in_the_table():
    assert sorted([*EXACT, *LOOSE, *MERGE]) == sorted(WriterKind)


def rule(kind: WriterKind, found: set[TableClass]) -> Decision:
    """The rule as the specification words it."""
    if VIOLATION in found:
        return Decision.REFUSE
    if found == {NO_MOVEMENT}:
        return Decision.FORGET
    moved = found - {NO_MOVEMENT} if kind in LOOSE else found
    return Decision.ROLL_FORWARD if moved == {EXPECTED} else Decision.ROLL_BACK


@each_case("kind", WriterKind)
@each_case(
    "classes",
    [
        combination
        for size in range(1, len(TableClass) + 1)
        for combination in combinations(TableClass, size)
    ],
    ids="-".join,
)
def test_the_decision_follows_from_the_classes_of_all_tables(kind, classes):
    found = {f"node:{number}": item for number, item in enumerate(classes)}
    assert decide(kind, found, is_published=False) is rule(kind, set(classes))
    assert decide(kind, found, is_published=True) is Decision.FINISH


@each_case(
    ("kind", "classes", "expected"),
    [
        (WriterKind.MUTATION, [EXPECTED, EXPECTED], Decision.ROLL_FORWARD),
        (WriterKind.MUTATION, [EXPECTED, NO_MOVEMENT], Decision.ROLL_BACK),
        (WriterKind.OPTIMIZE, [EXPECTED, NO_MOVEMENT], Decision.ROLL_FORWARD),
        (WriterKind.MUTATION, [NO_MOVEMENT, NO_MOVEMENT], Decision.FORGET),
        (WriterKind.MUTATION, [EXPECTED, AT_P1], Decision.ROLL_BACK),
        (WriterKind.BRANCH_MERGE, [INCOMPLETE, NO_MOVEMENT], Decision.ROLL_BACK),
        (WriterKind.OPTIMIZE, [EXPECTED, VIOLATION], Decision.REFUSE),
        (WriterKind.MUTATION, [], Decision.FORGET),
    ],
)
def test_decisions_of_the_specification_one_by_one(kind, classes, expected):
    found = {f"node:{number}": item for number, item in enumerate(classes)}
    assert decide(kind, found, is_published=False) is expected
