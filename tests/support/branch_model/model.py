"""Branches over dictionaries: commits, merges, differences and history, written from their description alone.

Nothing here comes from the code under test. A row is what an image of it shows, a state maps type keys to rows by id,
and neither is ever changed in place."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import Any, Final, Literal, TypeAlias

from hypothesis import strategies as st

Row: TypeAlias = dict[str, Any]
State: TypeAlias = dict[str, dict[str, Row]]
#: Type key and id.
Place: TypeAlias = tuple[str, str]

PERSON, TEAM = "node:Person", "node:Team"
KNOWS, ON, LEADS, RATES = "edge:Knows", "edge:On", "edge:Leads", "edge:Rates"
NODES: Final = (PERSON, TEAM)
#: Where edges begin and end.
ENDS: Final = {KNOWS: (PERSON, PERSON), ON: (PERSON, TEAM), LEADS: (PERSON, TEAM), RATES: (PERSON, TEAM)}
PROPERTIES: Final = {
    PERSON: ("name", "age", "note", "tags", "badge"),
    TEAM: ("name", "city", "size"),
    KNOWS: ("since",),
    ON: (),
    LEADS: (),
    RATES: ("stars",),
}
UNIQUES: Final = ((PERSON, ("badge",)), (TEAM, ("city", "size")))
EDGES_PER_SOURCE: Final = {ON: (0, 2), LEADS: (2, 3), RATES: (0, 2)}

SCHEMA = """
node Person {
    name: String @key
    age: I32? @index
    note: String?
    tags: [String]?
    badge: I32? @unique
}
node Team {
    name: String @key
    city: String?
    size: I32?
    @unique(city, size)
}
edge Knows: Person -> Person { since: I32? }
edge On: Person -> Team @card(0..2)
edge Leads: Person -> Team @card(2..3)
edge Rates: Person -> Team @card(0..2) { stars: I32?  @key(src, dst) }
"""


class _Undecided(Enum):
    """What bases hold that conflict with each other: it equals nothing, not even itself."""

    UNDECIDED = "undecided"


UNDECIDED: Final = _Undecided.UNDECIDED
Side: TypeAlias = Row | Literal[_Undecided.UNDECIDED] | None
CommonState: TypeAlias = dict[str, dict[str, Side]]


def empty_state() -> State:
    return {key: {} for key in PROPERTIES}


def copy_state(state: State) -> State:
    return {key: dict(rows) for key, rows in state.items()}


def make_row(key: str, ends: tuple[str, str] | None = None, **values: Any) -> Row:
    """A row with every property; for edges with their ends."""
    row: Row = {"properties": {name: values.get(name) for name in PROPERTIES[key]}}
    return row if ends is None else {**row, "endpoints": {"from": ends[0], "to": ends[1]}}


def key_of(ends: tuple[str, str]) -> str:
    """The id of an edge that has a key."""
    return json.dumps(ends, separators=(",", ":"))


def source_of(row: Row) -> str:
    return str(row["endpoints"]["from"])


def target_of(row: Row) -> str:
    return str(row["endpoints"]["to"])


def without_nodes(state: State, key: str, gone: set[str]) -> State:
    """The state without some nodes and every edge at one of them."""
    left = {**state, key: {name: row for name, row in state[key].items() if name not in gone}}
    for edge, (begin, end) in ENDS.items():
        left[edge] = {
            edge_id: row
            for edge_id, row in state[edge].items()
            if not (begin == key and source_of(row) in gone) and not (end == key and target_of(row) in gone)
        }
    return left


# ---- rules of the schema


def shared_tuples(state: State) -> dict[tuple[str, tuple[Any, ...]], set[str]]:
    """Every tuple that has to be unique and is not, with the ids that hold it."""
    holders: defaultdict[tuple[str, tuple[Any, ...]], set[str]] = defaultdict(set)
    for key, members in UNIQUES:
        for entity_id, row in state[key].items():
            values = tuple(row["properties"][member] for member in members)
            if None not in values:
                holders[key, values].add(entity_id)
    return {place: ids for place, ids in holders.items() if len(ids) > 1}


def lacks_an_end(state: State, key: str, row: Row) -> bool:
    begin, end = ENDS[key]
    return source_of(row) not in state[begin] or target_of(row) not in state[end]


def is_outside(state: State, key: str, source: str) -> bool:
    """Whether a source has too few or too many edges; none at all are never too few."""
    low, high = EDGES_PER_SOURCE[key]
    count = sum(source_of(row) == source for row in state[key].values())
    return count > 0 and not low <= count <= high


def is_legal(state: State) -> bool:
    """Whether a whole state keeps every rule."""
    return (
        not shared_tuples(state)
        and not any(lacks_an_end(state, key, row) for key in ENDS for row in state[key].values())
        and not any(is_outside(state, key, source_of(row)) for key in EDGES_PER_SOURCE for row in state[key].values())
    )


# ---- differences


@dataclass(frozen=True, slots=True)
class Difference:
    """What happened to one entity."""

    before: Row | None
    after: Row | None

    @property
    def op(self) -> str:
        if self.before is None:
            return "insert"
        return "delete" if self.after is None else "update"

    @property
    def ends(self) -> dict[str, str] | None:
        """Where an edge is, or was."""
        row = self.after or self.before or {}
        return row.get("endpoints")


def differences(one: State, other: State) -> dict[Place, Difference]:
    found = {}
    for key in PROPERTIES:
        for entity_id in one[key].keys() | other[key].keys():
            before, after = one[key].get(entity_id), other[key].get(entity_id)
            if before != after:
                found[key, entity_id] = Difference(before, after)
    return found


# ---- merging


def is_same(one: Side, other: Side) -> bool:
    return one is not UNDECIDED and other is not UNDECIDED and one == other


def decide(base: Side, source: Side, target: Side) -> tuple[Side, str | None]:
    """What becomes of one id, or the kind of the conflict about it. The absence of a row is None."""
    if is_same(source, target):
        return target, None
    if base is None:
        if source is None:
            return target, None
        if target is None:
            return source, None
        return UNDECIDED, "divergent_insert"
    if is_same(base, target):
        return source, None
    if is_same(base, source):
        return target, None
    if source is None or target is None:
        return UNDECIDED, "delete_vs_update"
    return UNDECIDED, "divergent_update"


@dataclass(frozen=True, slots=True)
class MergePlan:
    """What a merge does, or why it cannot."""

    outcome: str
    #: The state of the target afterwards, if nothing is in the way.
    result: State
    #: Conflicts about rows: kind, type key, id.
    rows: frozenset[tuple[str, str, str]] = frozenset()
    #: Edges of the result without an end.
    orphans: frozenset[Place] = frozenset()
    #: The holders of every tuple that is not unique, with their type.
    shared: frozenset[tuple[str, frozenset[str]]] = frozenset()
    #: Sources with too few or too many edges, with the type of these.
    crowded: frozenset[Place] = frozenset()
    #: Where the branches last agreed.
    base: CommonState = field(default_factory=dict)
    #: The same merge with each strategy, where conflicts about rows are undecided.
    decided: dict[str, MergePlan] = field(default_factory=dict)

    @property
    def is_possible(self) -> bool:
        return not (self.rows or self.orphans or self.shared or self.crowded)


def check_result(plan: MergePlan, target: State) -> MergePlan:
    """Add every rule that the result violates, as far as the merge changes something about it."""
    result = plan.result
    changed = differences(target, result)
    gone = {place for place, change in changed.items() if change.op == "delete"}
    orphans = set()
    touched: set[Place] = set()
    for key, (begin, end) in ENDS.items():
        for edge_id, row in result[key].items():
            is_left = (begin, source_of(row)) in gone or (end, target_of(row)) in gone
            if is_left or ((key, edge_id) in changed and lacks_an_end(result, key, row)):
                orphans.add((key, edge_id))
    for (key, _), change in changed.items():
        if key in EDGES_PER_SOURCE:
            touched |= {(key, source_of(row)) for row in (change.before, change.after) if row}
    crowded = {
        (key, source) for key, source in touched if source in result[ENDS[key][0]] and is_outside(result, key, source)
    }
    shared = {
        (key, frozenset(ids))
        for (key, _), ids in shared_tuples(result).items()
        if any((key, entity_id) in changed for entity_id in ids)
    }
    checked = MergePlan(
        outcome=plan.outcome,
        result=result,
        orphans=frozenset(orphans),
        shared=frozenset(shared),
        crowded=frozenset(crowded),
        base=plan.base,
    )
    assert checked.is_possible == is_legal(result), "what the merge does not touch was legal before"
    return checked


# ---- history


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One commit; a physical one has the state of its parent."""

    id: str
    version: int
    #: The graph version that made the branch it was made on.
    incarnation: int
    parent: str | None
    merged_parent: str | None
    state: State


@dataclass(slots=True, kw_only=True)
class Branch:
    """A live branch."""

    incarnation: int
    head: str
    #: The incarnation of the branch that it began at.
    base: int | None


@dataclass(slots=True)
class GraphModel:
    """Every commit that ever was, and the branches that are."""

    commits: dict[str, Commit] = field(default_factory=dict)
    branches: dict[str, Branch] = field(default_factory=dict)
    version: int = 0
    #: Answers of `common_state`: many merges to and fro ask the same again and again.
    common: dict[tuple[frozenset[str], str], CommonState] = field(default_factory=dict)

    # ---- writing

    def create(self, name: str, head: str, base: int | None) -> None:
        """Add a branch at a commit that exists."""
        self.version += 1
        self.branches[name] = Branch(incarnation=self.version, head=head, base=base)

    def add(self, branch: str, commit_id: str, state: State, merged_parent: str | None = None) -> Commit:
        """Add a commit to a branch."""
        self.version += 1
        known = self.branches[branch]
        commit = Commit(
            id=commit_id,
            version=self.version,
            incarnation=known.incarnation,
            parent=known.head,
            merged_parent=merged_parent,
            state=state,
        )
        self.commits[commit_id] = commit
        known.head = commit_id
        return commit

    def can_delete(self, name: str) -> bool:
        """Nothing that is still there began at the branch. What reads its tables began at it or at such a branch."""
        incarnation = self.branches[name].incarnation
        return name != "main" and all(it.base != incarnation for it in self.branches.values())

    def delete(self, name: str) -> None:
        self.version += 1
        del self.branches[name]

    # ---- reading

    def state(self, branch: str) -> State:
        return self.commits[self.branches[branch].head].state

    def line(self, branch: str) -> list[Commit]:
        """The commits of a branch over first parents, oldest first."""
        found = []
        current: str | None = self.branches[branch].head
        while current is not None:
            found.append(self.commits[current])
            current = found[-1].parent
        return found[::-1]

    def at_version(self, branch: str, version: int) -> Commit | None:
        """The commit that a branch was at right after a publish of the graph; None where there is no answer."""
        if not self.branches[branch].incarnation <= version <= self.version:
            return None
        return [commit for commit in self.line(branch) if commit.version <= version][-1]

    def is_readable(self, commit: Commit) -> bool:
        """Commits of deleted branches serve as merge bases only."""
        return any(it.incarnation == commit.incarnation for it in self.branches.values())

    def readable(self) -> list[Commit]:
        return [commit for commit in self.commits.values() if self.is_readable(commit)]

    def changes(self, commit: Commit) -> dict[Place, Difference]:
        """What a commit did, against its first parent."""
        assert commit.parent is not None, "the first commit has nothing to be compared with"
        return differences(self.commits[commit.parent].state, commit.state)

    # ---- merging

    def plan_merge(self, source: str, target: str, strategy: str | None) -> MergePlan:
        """What a merge of two branches does."""
        one, other = self.branches[source].head, self.branches[target].head
        theirs, ours = self.commits[one].state, self.commits[other].state
        bases = self.bases({one}, other)
        if bases == [one]:
            return MergePlan("already_up_to_date", ours)
        outcome = "fast_forward" if bases == [other] else "merged"
        base = self.common_state({one}, other)
        result = copy_state(ours)
        rows = set()
        for key in PROPERTIES:
            for entity_id in base[key].keys() | theirs[key].keys() | ours[key].keys():
                sides = (theirs[key].get(entity_id), ours[key].get(entity_id))
                row, conflict = decide(base[key].get(entity_id), *sides)
                if conflict is not None:
                    rows.add((conflict, key, entity_id))
                    row = sides[strategy == "ours"]
                result[key].pop(entity_id, None)
                if row is not None:
                    assert row is not UNDECIDED, "a branch knows what it holds"
                    result[key][entity_id] = row
        if rows and strategy is None:
            decided = {it: self.plan_merge(source, target, it) for it in ("ours", "theirs")}
            return MergePlan(outcome, ours, frozenset(rows), base=base, decided=decided)
        return check_result(MergePlan(outcome, result, base=base), ours)

    def parents(self, commit_id: str) -> Iterator[str]:
        commit = self.commits[commit_id]
        yield from (it for it in (commit.parent, commit.merged_parent) if it is not None)

    def steps(self, starts: Iterable[str]) -> dict[str, int]:
        """Every ancestor of some commits, themselves included, with the length of the shortest way to it."""
        found: dict[str, int] = {}
        wave, length = set(starts), 0
        while wave:
            found |= dict.fromkeys(wave, length)
            wave = {up for it in wave for up in self.parents(it)} - found.keys()
            length += 1
        return found

    def bases(self, line: set[str], other: str) -> list[str]:
        """The lowest common ancestors of a line and a commit, nearest first, of equally near ones the newest first."""
        near, far = self.steps(line), self.steps([other])
        common = near.keys() & far.keys()
        behind = {up for it in common for up in self.steps(self.parents(it))}
        order = {it: (near[it] + far[it], -self.commits[it].version) for it in common - behind}
        return sorted(order, key=lambda it: order[it])

    def common_state(self, line: set[str], other: str) -> CommonState:
        """Where a line and a commit last agreed: a commit, or the merge of several, undecided where these conflict."""
        question = (frozenset(line), other)
        if question not in self.common:
            self.common[question] = self._common_state(*self.bases(line, other))
        return self.common[question]

    def _common_state(self, first: str, *more: str) -> CommonState:
        merged: CommonState = {key: dict(rows) for key, rows in self.commits[first].state.items()}
        seen = {first}
        for commit_id in more:
            base = self.common_state(seen, commit_id)
            state = self.commits[commit_id].state
            for key, rows in merged.items():
                for entity_id in base[key].keys() | rows.keys() | state[key].keys():
                    sides = (state[key].get(entity_id), rows.get(entity_id))
                    rows[entity_id], _ = decide(base[key].get(entity_id), *sides)
            seen.add(commit_id)
        return merged


def count_changes(changed: dict[Place, Difference]) -> dict[str, tuple[int, int, int]]:
    """Inserts, updates and deletes of every type that changed."""
    counts = Counter((key, change.op) for (key, _), change in changed.items())
    return {
        key: (counts[key, "insert"], counts[key, "update"], counts[key, "delete"])
        for key in sorted({key for key, _ in counts})
    }


def is_ordered(keys: Sequence[Any]) -> bool:
    return all(one < other for one, other in pairwise(keys))


# ---- What a random history of branches is made of: rows, writes, and the lines in which a load and an export speak


#: Few, so that branches meet at the same rows; the last of each does not exist at first.
PEOPLE = st.sampled_from(["a", "a", "b", "it's", "n"])
TEAMS = st.sampled_from(["a", "t", "u", "v"])
#: Ids of edges: those that the graph begins with, under any type, and another one.
EDGES = st.sampled_from(["e1", "k1", "o1", "lt", "lu"])
NEW_BRANCHES = st.sampled_from(["one", "two/deep", "three", "four"])
SMALL = st.none() | st.integers(0, 2)
CODES = st.sampled_from([None, 1, 2])
TEXTS = st.sampled_from([None, "", "x"])
LISTS = st.sampled_from([None, [], [""], ["x", "y"]])
#: Chosen among as many as there are; the newest come first, so that failures shrink towards them.
CHOICE = st.integers(0, 40)
#: Chosen among the branches.
BRANCH = st.integers(0, 4)
STRATEGIES = st.sampled_from([None, None, "ours", "theirs"])

#: Type key, id, row.
Record: TypeAlias = tuple[str, str, Row]
Operation: TypeAlias = tuple[str, dict[str, Any]]

#: A graph to begin with, so that merges have something to disagree about at once.
FIRST = {
    PERSON: {name: make_row(PERSON, name=name, age=1) for name in ("a", "b", "it's")},
    TEAM: {name: make_row(TEAM, name=name) for name in ("a", "t", "u")},
    KNOWS: {"k1": make_row(KNOWS, ("a", "b"), since=1), "k2": make_row(KNOWS, ("b", "b"))},
    ON: {"o1": make_row(ON, ("a", "t"))},
    RATES: {key_of(("a", "t")): make_row(RATES, ("a", "t"), stars=1)},
    LEADS: {f"l{team}": make_row(LEADS, ("b", team)) for team in ("a", "t", "u")},
}


@st.composite
def records(draw: st.DrawFn) -> Record:
    """One record of a load."""
    key = draw(st.sampled_from(sorted(PROPERTIES)))
    if key == PERSON:
        name = draw(PEOPLE)
        values: dict[str, Any] = {"age": draw(SMALL), "note": draw(TEXTS), "tags": draw(LISTS)}
        return key, name, make_row(key, None, name=name, badge=draw(CODES), **values)
    if key == TEAM:
        name = draw(TEAMS)
        return key, name, make_row(key, name=name, city=draw(TEXTS), size=draw(CODES))
    ends = (draw(PEOPLE), draw(PEOPLE if ENDS[key][1] == PERSON else TEAMS))
    if key == RATES:
        return key, key_of(ends), make_row(key, ends, stars=draw(SMALL))
    since = draw(SMALL) if key == KNOWS else None
    return key, draw(EDGES), make_row(key, ends, since=since)


def operation(method: str, /, **values: st.SearchStrategy[Any]) -> st.SearchStrategy[Operation]:
    return st.tuples(st.just(method), st.fixed_dictionaries(values))


NEW_PERSON = operation("insert_person", name=PEOPLE, age=SMALL, note=TEXTS, tags=LISTS, badge=CODES)
#: One write to one branch: the method that does it, and what it gets.
OPERATIONS = st.one_of(
    NEW_PERSON,
    operation("insert_team", name=TEAMS, city=TEXTS, size=CODES),
    operation("meet", name=PEOPLE, friend=PEOPLE, since=SMALL),
    operation("join", key=st.just(ON), name=PEOPLE, teams=st.lists(TEAMS, min_size=1, max_size=2)),
    operation("join", key=st.just(LEADS), name=PEOPLE, teams=st.lists(TEAMS, min_size=1, max_size=3)),
    operation("rate", name=PEOPLE, teams=st.lists(TEAMS, min_size=1, max_size=2), stars=SMALL),
    operation("update_people", age=SMALL, note=TEXTS, badge=CODES),
    operation("delete_people", name=PEOPLE, badge=CODES),
    operation("delete_team", name=TEAMS),
    operation(
        "delete_edges", key=st.sampled_from(sorted(ENDS)), end=st.sampled_from(["from", "to"]), name=PEOPLE | TEAMS
    ),
    operation("load", mode=st.just("append"), rows=st.lists(records(), max_size=2)),
    operation("load", mode=st.just("merge"), rows=st.lists(records(), max_size=3)),
    operation("load", mode=st.just("overwrite"), rows=st.lists(records(), max_size=4)),
    operation("load_a_changed_copy", drop=CHOICE, rows=st.lists(records(), max_size=2)),
)


def person(name: str, **values: Any) -> Operation:
    nothing = {"age": None, "note": None, "tags": None, "badge": None}
    return "insert_person", {"name": name, **nothing, **values}


#: Two writes that are legal each, and usually not together.
CLASHES = st.sampled_from(
    [
        (person("n", age=1), person("n", age=2)),
        (person("n", tags=[]), person("n")),
        (person("a", note=""), person("a", note="x")),
        (person("a", note="x"), ("delete_people", {"name": "a", "badge": None})),
        (person("a", badge=1), person("n", badge=1)),
        (("insert_team", {"name": "t", "city": "", "size": 1}), ("insert_team", {"name": "v", "city": "", "size": 1})),
        (("meet", {"name": "a", "friend": "b", "since": None}), ("delete_people", {"name": "b", "badge": None})),
        (
            ("delete_edges", {"key": LEADS, "end": "to", "name": "a"}),
            ("delete_edges", {"key": LEADS, "end": "to", "name": "t"}),
        ),
        (("rate", {"name": "a", "teams": ["u"], "stars": 1}), ("rate", {"name": "a", "teams": ["t", "u"], "stars": 2})),
        (("rate", {"name": "a", "teams": ["t"], "stars": None}), ("delete_team", {"name": "t"})),
        (("join", {"key": ON, "name": "b", "teams": ["t", "t"]}), ("join", {"key": ON, "name": "b", "teams": ["u"]})),
    ]
)
FEW_OPERATIONS = st.lists(OPERATIONS, min_size=1, max_size=2)


def as_line(key: str, entity_id: str, row: Row) -> str:
    """One line of a load."""
    kind, _, name = key.partition(":")
    data = {**row["properties"], "id": entity_id}
    if kind == "node":
        return json.dumps({"type": name, "data": data})
    return json.dumps({"edge": name, **row["endpoints"], "data": data})


def from_lines(text: str) -> State:
    """The state that an export shows."""
    state = empty_state()
    for line in text.splitlines():
        record = json.loads(line)
        data = record["data"]
        entity_id = data.pop("id")
        if "type" in record:
            state[f"node:{record['type']}"][entity_id] = {"properties": data}
        else:
            ends = {"from": record["from"], "to": record["to"]}
            row = {"properties": data, "endpoints": ends}
            state[f"edge:{record['edge']}"][entity_id] = row
    return state
