"""Random mutations against a plain dictionary: rows, counts and refusals agree after every step."""

from __future__ import annotations

import copy
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import lance
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from omnigraph.core import failpoints
from omnigraph.core.failpoints import Failpoint, FailpointError
from omnigraph.errors import BadRequestError, RecoveryRequiredError
from omnigraph.graph.graph import Graph

SCHEMA = """
node Person {
    name: String @key
    age: I32?
    badge: I32? @unique
    @range(age, 0..9)
}
node Team { name: String @key size: I32? }
edge Knows: Person -> Person { since: I32? }
edge On: Person -> Team @card(0..2)
edge Rates: Person -> Team @card(0..1) { stars: I32?  @key(src, dst) }
"""

NAMES = st.sampled_from(["a", "b", "it's"])
SMALL = st.none() | st.integers(0, 3)
AGES = st.none() | st.integers(-1, 10)
BRANCHES = st.sampled_from(["main", "side"])
OPS = {"=": lambda x, y: x == y, "!=": lambda x, y: x != y, "<": lambda x, y: x < y, ">=": lambda x, y: x >= y}
OP = st.sampled_from(sorted(OPS))
#: Every place that a write passes; the others belong to recovery and init.
PLACES = st.sampled_from(
    [place for place in Failpoint if not place.startswith("init_") and place is not Failpoint.RECOVERY_LIST]
)


Row = dict[str, Any]


@dataclass(frozen=True)
class Expression:
    """An expression over a row: its text, and its value, which is None where it is unknown."""

    text: str
    of: Callable[[Row], Any]

    def __repr__(self) -> str:
        return self.text


def _known(apply: Callable[..., Any], *parts: Expression) -> Callable[[Row], Any]:
    def value(row: Row) -> Any:
        values = [part.of(row) for part in parts]
        return None if None in values else apply(*values)

    return value


def _all(left: Expression, right: Expression) -> Expression:
    def value(row: Row) -> bool | None:
        found = {left.of(row), right.of(row)}
        return False if False in found else None if None in found else True

    return Expression(f"({left} and {right})", value)


def _not(inner: Expression) -> Expression:
    return Expression(f"not ({inner})", _known(lambda truth: not truth, inner))


def _any(left: Expression, right: Expression) -> Expression:
    def value(row: Row) -> bool | None:
        found = {left.of(row), right.of(row)}
        return True if True in found else None if None in found else False

    return Expression(f"({left} or {right})", value)


def _field(name: str) -> Expression:
    return Expression(name, lambda row: row[name])


FIELDS = st.sampled_from([_field("age"), _field("badge")])
NUMBERS = st.one_of(
    FIELDS,
    st.integers(0, 9).map(lambda number: Expression(str(number), lambda _: number)),
    st.builds(lambda one, two: Expression(f"({one} + {two})", _known(lambda a, b: a + b, one, two)), FIELDS, FIELDS),
    FIELDS.map(lambda one: Expression(f"coalesce({one}, 1)", lambda row: 1 if one.of(row) is None else one.of(row))),
)
ATOMS = st.one_of(
    st.builds(
        lambda one, op, two: Expression(f"{one} {op} {two}", _known(OPS[op], one, two)),
        NUMBERS,
        st.sampled_from(sorted(OPS)),
        NUMBERS,
    ),
    FIELDS.map(lambda one: Expression(f"{one} is null", lambda row: one.of(row) is None)),
    st.lists(st.integers(0, 9), min_size=1, max_size=3).map(
        lambda items: Expression(f"age in {items}", lambda row: None if row["age"] is None else row["age"] in items)
    ),
    NAMES.map(lambda name: Expression(f'@id = "{name}"', lambda row: row["name"] == name)),
)
CONDITIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(st.builds(_all, inner, inner), st.builds(_any, inner, inner), inner.map(_not)),
    max_leaves=4,
)
VALUES = st.one_of(
    NUMBERS,
    st.just(Expression("null", lambda _: None)),
    st.builds(
        lambda test, one, two: Expression(
            f"case when {test} then {one} else {two} end", lambda row: (one if test.of(row) else two).of(row)
        ),
        ATOMS,
        NUMBERS,
        NUMBERS,
    ),
)


def holds(op: str, left: Any, right: Any) -> bool:
    return left is not None and right is not None and OPS[op](left, right)


@dataclass
class Model:
    """One branch. Edges are lists, because equal ones may exist."""

    people: dict[str, tuple[int | None, int | None]] = field(default_factory=dict)
    teams: dict[str, int | None] = field(default_factory=dict)
    knows: list[tuple[str, str, int | None]] = field(default_factory=list)
    on: list[tuple[str, str]] = field(default_factory=list)
    #: Edges with a key.
    rates: dict[tuple[str, str], int | None] = field(default_factory=dict)
    #: Whether a match gave one property of one node two values.
    is_ambiguous: bool = False

    def row(self, name: str) -> Row:
        age, badge = self.people[name]
        return {"name": name, "age": age, "badge": badge}

    def remove_people(self, gone: set[str]) -> int:
        """Take people away with their edges; how many edges these are."""
        before = len(self.knows) + len(self.on) + len(self.rates)
        self.people = {name: row for name, row in self.people.items() if name not in gone}
        self.knows = [edge for edge in self.knows if edge[0] not in gone and edge[1] not in gone]
        self.on = [edge for edge in self.on if edge[0] not in gone]
        self.rates = {ends: stars for ends, stars in self.rates.items() if ends[0] not in gone}
        return before - len(self.knows) - len(self.on) - len(self.rates)

    def is_legal(self) -> bool:
        badges = [badge for _, badge in self.people.values() if badge is not None]
        sources = [source for source, _ in self.on]
        return (
            all(age is None or 0 <= age <= 9 for age, _ in self.people.values())
            and len(badges) == len(set(badges))
            and all(s in self.people and d in self.people for s, d, _ in self.knows)
            and all(s in self.people and d in self.teams for s, d in self.on)
            and all(sources.count(source) <= 2 for source in sources)
            and all(s in self.people and d in self.teams for s, d in self.rates)
            and len({source for source, _ in self.rates}) == len(self.rates)
            and not self.is_ambiguous
        )


class Mutations(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.root = tempfile.mkdtemp(prefix="mutation-model-")
        self.graph = Graph.init(f"{self.root}/g", SCHEMA)
        self.models = {"main": Model()}

    def teardown(self) -> None:
        if hasattr(self, "root"):
            shutil.rmtree(self.root)

    def attempt(self, branch: str, text: str, params: dict[str, Any], after: Model, nodes: int, edges: int) -> None:
        """The graph accepts what the model calls legal, with these counts, and refuses the rest."""
        before = self.models[branch]
        head = self.graph.snapshot(branch)
        if not after.is_legal():
            with pytest.raises(BadRequestError):
                self.graph.mutate(text, params, branch=branch)
            assert self.graph.snapshot(branch) == head
            return
        result = self.graph.mutate(text, params, branch=branch)
        assert (result.affected_nodes, result.affected_edges) == (nodes, edges)
        assert (result.commit is None) == (nodes + edges == 0)
        if result.commit is None:
            assert after == before
        else:
            assert result.commit.parent_id == head.commit_id
        self.models[branch] = after

    def pick(self, branch: str) -> tuple[str, Model]:
        branch = branch if branch in self.models else "main"
        return branch, copy.deepcopy(self.models[branch])

    @rule(branch=BRANCHES, name=NAMES, age=AGES, badge=SMALL)
    def insert_person(self, branch: str, name: str, age: int | None, badge: int | None) -> None:
        branch, model = self.pick(branch)
        model.people[name] = (age, badge)
        text = "query q($n: String, $a: I32?, $b: I32?) { insert Person { name: $n, age: $a, badge: $b } }"
        self.attempt(branch, text, {"n": name, "a": age, "b": badge}, model, 1, 0)

    @rule(branch=BRANCHES, name=NAMES, friend=NAMES, since=SMALL)
    def insert_pair(self, branch: str, name: str, friend: str, since: int | None) -> None:
        """Two nodes, of which the second may replace the first, and an edge between them."""
        branch, model = self.pick(branch)
        model.people[name] = (1, None)
        model.people[friend] = (2, None)
        model.knows.append((name, friend, since))
        text = (
            "query q($n: String, $f: String, $s: I32?) { insert Knows { from: $n, to: $f, since: $s } "
            "insert Person { name: $n, age: 1 } insert Person { name: $f, age: 2 } }"
        )
        self.attempt(branch, text, {"n": name, "f": friend, "s": since}, model, 2, 1)

    @rule(branch=BRANCHES, name=NAMES, friend=NAMES, place=PLACES)
    def fail_somewhere(self, branch: str, name: str, friend: str, place: Failpoint) -> None:
        """A write that fails at a named place happened completely or not at all, and the next one works."""
        branch, model = self.pick(branch)
        model.people[name] = (3, None)
        model.people[friend] = (4, None)
        model.knows.append((name, friend, 7))
        text = (
            "query q($n: String, $f: String) { insert Person { name: $n, age: 3 } "
            "insert Person { name: $f, age: 4 } insert Knows { from: $n, to: $f, since: 7 } }"
        )
        failpoints.reset()
        with mock.patch.dict(os.environ, {failpoints.VARIABLE: f"{place}=raise"}):
            try:
                self.graph.mutate(text, {"n": name, "f": friend}, branch=branch)
                happened: bool | None = True
            except FailpointError:
                # Behind its last step a write has happened, whatever its caller gets to know.
                happened = place is Failpoint.AFTER_SIDECAR_DELETE
            except RecoveryRequiredError:
                happened = None
        self.graph.refresh()
        count = self.graph.snapshot(branch).pins["edge:Knows"].row_count
        is_after = count == len(model.knows)
        assert happened in (None, is_after)
        if is_after:
            self.models[branch] = model

    @rule(branch=BRANCHES, name=NAMES, size=SMALL)
    def insert_team(self, branch: str, name: str, size: int | None) -> None:
        branch, model = self.pick(branch)
        model.teams[name] = size
        text = "query q($n: String, $s: I32?) { insert Team { name: $n, size: $s } }"
        self.attempt(branch, text, {"n": name, "s": size}, model, 1, 0)

    @rule(branch=BRANCHES, source=NAMES, team=NAMES, times=st.integers(1, 2))
    def join_team(self, branch: str, source: str, team: str, times: int) -> None:
        branch, model = self.pick(branch)
        model.on += [(source, team)] * times
        statements = "insert On { from: $s, to: $t } " * times
        text = f"query q($s: String, $t: String) {{ {statements} }}"
        self.attempt(branch, text, {"s": source, "t": team}, model, 0, times)

    @rule(branch=BRANCHES, source=NAMES, teams=st.lists(NAMES, min_size=1, max_size=2), stars=SMALL)
    def rate(self, branch: str, source: str, teams: list[str], stars: int | None) -> None:
        branch, model = self.pick(branch)
        model.rates |= {(source, team): stars for team in teams}
        statements = "".join(f"insert Rates {{ from: $s, to: $t{n}, stars: $x }} " for n in range(len(teams)))
        declared = "".join(f", $t{n}: String" for n in range(len(teams)))
        params = {"s": source, "x": stars} | {f"t{n}": team for n, team in enumerate(teams)}
        self.attempt(
            branch, f"query q($s: String, $x: I32?{declared}) {{ {statements} }}", params, model, 0, len(teams)
        )

    @rule(branch=BRANCHES, op=OP, bound=SMALL, age=AGES, badge=SMALL)
    def update_people(self, branch: str, op: str, bound: int | None, age: int | None, badge: int | None) -> None:
        """Two chained updates: the second sees what the first did."""
        branch, model = self.pick(branch)
        first = [name for name, (old, _) in model.people.items() if holds(op, old, bound)]
        for name in first:
            model.people[name] = (age, model.people[name][1])
        second = [name for name, (new, _) in model.people.items() if holds("=", new, age)]
        for name in second:
            model.people[name] = (model.people[name][0], badge)
        text = (
            f"query q($x: I32?, $a: I32?, $b: I32?) {{ update Person set {{ age: $a }} where age {op} $x "
            "update Person set { badge: $b } where age = $a }"
        )
        params = {"x": bound, "a": age, "b": badge}
        self.attempt(branch, text, params, model, len(first) + len(second), 0)

    @rule(branch=BRANCHES, condition=CONDITIONS, age=VALUES, badge=VALUES)
    def update_by_expressions(self, branch: str, condition: Expression, age: Expression, badge: Expression) -> None:
        """Values of the row before the statement, where the condition is certainly true."""
        branch, model = self.pick(branch)
        rows = {name: model.row(name) for name in model.people}
        found = [name for name, row in rows.items() if condition.of(row) is True]
        model.people |= {name: (age.of(rows[name]), badge.of(rows[name])) for name in found}
        text = f"update Person set {{ age: {age}, badge: {badge} }} where {condition}"
        self.attempt(branch, text, {}, model, len(found), 0)

    @rule(branch=BRANCHES, condition=CONDITIONS)
    def delete_by_expression(self, branch: str, condition: Expression) -> None:
        branch, model = self.pick(branch)
        gone = {name for name in model.people if condition.of(model.row(name)) is True}
        edges = model.remove_people(gone)
        self.attempt(branch, f"delete Person where {condition}", {}, model, len(gone), edges)

    @rule(branch=BRANCHES, name=NAMES, age=AGES)
    def upsert_person(self, branch: str, name: str, age: int | None) -> None:
        """What is not assigned stays, also what an earlier statement assigned."""
        branch, model = self.pick(branch)
        _, badge = model.people.get(name, (None, None))
        model.people[name] = (age, badge)
        text = "query q($n: String, $a: I32?) { upsert Person { name: $n } upsert Person { name: $n, age: $a } }"
        self.attempt(branch, text, {"n": name, "a": age}, model, 2, 0)

    @rule(branch=BRANCHES, source=NAMES, more=st.integers(1, 2))
    def update_edges(self, branch: str, source: str, more: int) -> None:
        branch, model = self.pick(branch)
        found = [edge for edge in model.knows if edge[0] == source or edge[2] is None]
        left = [edge for edge in model.knows if edge not in found]
        model.knows = left + [(s, d, None if since is None else since + more) for s, d, since in found]
        text = (
            "query q($s: String, $m: I32) { update Knows set { since: since + $m } where from = $s or since is null }"
        )
        self.attempt(branch, text, {"s": source, "m": more}, model, 0, len(found))

    @rule(branch=BRANCHES, source=NAMES)
    def update_matched(self, branch: str, source: str) -> None:
        """The second statement reads what was there before the first one."""
        branch, model = self.pick(branch)
        before = {name: model.row(name) for name in model.people}
        pairs = {(s, d) for s, d, _ in model.knows if s != source}
        for name in {s for s, _ in pairs}:
            ages = {before[d]["age"] for s, d in pairs if s == name}
            model.is_ambiguous |= len(ages) > 1
            model.people[name] = (next(iter(ages)), before[name]["badge"])
        known = {d for _, d in pairs}
        for name in known:
            model.people[name] = (model.people[name][0], None)
        text = (
            "query q($s: String) { match { $p: Person  $p knows $x  $p.name != $s } "
            "update $x set { badge: null } update $p set { age: $x.age } }"
        )
        self.attempt(branch, text, {"s": source}, model, len({s for s, _ in pairs}) + len(known), 0)
        self.models[branch].is_ambiguous = False

    @rule(branch=BRANCHES)
    def rate_matched(self, branch: str) -> None:
        """New nodes and their edges, one for each pair of the match."""
        branch, model = self.pick(branch)
        pairs = [
            (name, team)
            for name, (age, _) in model.people.items()
            for team, size in model.teams.items()
            if holds("=", age, size)
        ]
        model.rates |= {(name, team): model.people[name][1] for name, team in pairs}
        model.teams |= {f"fans of {team}": 0 for _, team in pairs}
        text = (
            "query q() { match { $p: Person  $t: Team  $p.age = $t.size } "
            "insert Rates { from: $p, to: $t, stars: $p.badge } "
            'insert Team { name: concat("fans of ", $t.name), size: 0 } as $new '
            "return { $new.@id as fans, $p.name as name } }"
        )
        nodes = len({team for _, team in pairs})
        self.attempt(branch, text, {}, model, nodes, len(pairs))

    @rule(branch=BRANCHES)
    def delete_matched(self, branch: str) -> None:
        branch, model = self.pick(branch)
        gone = {d for s, d, _ in model.knows if s != d}
        edges = model.remove_people(gone)
        text = "query q() { match { $p: Person  $p knows $x  $p != $x } delete $x }"
        self.attempt(branch, text, {}, model, len(gone), edges)

    @rule(branch=BRANCHES, op=OP, name=NAMES, second=OP, bound=SMALL)
    def delete_people(self, branch: str, op: str, name: str, second: str, bound: int | None) -> None:
        """Two overlapping deletes and the edges that go with them."""
        branch, model = self.pick(branch)
        gone = {key for key, (age, _) in model.people.items() if holds(second, age, bound) or holds(op, key, name)}
        edges = model.remove_people(gone)
        text = (
            f"query q($x: I32?, $n: String) {{ delete Person where age {second} $x delete Person where name {op} $n }}"
        )
        self.attempt(branch, text, {"x": bound, "n": name}, model, len(gone), edges)

    @rule(branch=BRANCHES, op=OP, since=SMALL, source=NAMES)
    def delete_edges(self, branch: str, op: str, since: int | None, source: str) -> None:
        branch, model = self.pick(branch)
        left = [edge for edge in model.knows if not holds(op, edge[2], since) and edge[0] != source]
        edges = len(model.knows) - len(left)
        model.knows = left
        text = f"query q($s: I32?, $f: String) {{ delete Knows where since {op} $s delete Knows where from = $f }}"
        self.attempt(branch, text, {"s": since, "f": source}, model, 0, edges)

    @rule(name=NAMES)
    def delete_team(self, name: str) -> None:
        branch, model = self.pick("main")
        nodes = int(model.teams.pop(name, 0) is None or name in self.models[branch].teams)
        edges = sum(edge[1] == name for edge in (*model.on, *model.rates))
        model.rates = {ends: stars for ends, stars in model.rates.items() if ends[1] != name}
        model.on = [edge for edge in model.on if edge[1] != name]
        text = "query q($n: String) { delete Team where name = $n }"
        self.attempt(branch, text, {"n": name}, model, nodes, edges)

    @rule()
    def reopen(self) -> None:
        self.graph.close()
        self.graph = Graph.open(f"{self.root}/g")

    @rule()
    def fork(self) -> None:
        if "side" in self.models:
            with pytest.raises(BadRequestError):
                self.graph.create_branch("side")
        else:
            self.graph.create_branch("side")
            self.models["side"] = copy.deepcopy(self.models["main"])

    def rows(self, branch: str, key: str) -> list[dict[str, Any]]:
        pin = self.graph.snapshot(branch).pins[key]
        uri = f"{self.graph.uri}/{pin.location}"
        uri = uri if pin.branch is None else f"{uri}/tree/{pin.branch}"
        found: list[dict[str, Any]] = lance.dataset(uri, version=pin.version).to_table().to_pylist()
        assert len(found) == pin.row_count
        assert len({row["id"] for row in found}) == len(found)
        return found

    @invariant()
    def every_branch_holds_what_its_model_holds(self) -> None:
        if not hasattr(self, "models"):
            return
        assert self.graph.branches() == sorted(self.models)
        for branch, model in self.models.items():
            people = self.rows(branch, "node:Person")
            assert {row["id"]: (row["age"], row["badge"]) for row in people} == model.people
            teams = self.rows(branch, "node:Team")
            assert {row["id"]: row["size"] for row in teams} == model.teams
            knows = [(row["src"], row["dst"], row["since"]) for row in self.rows(branch, "edge:Knows")]
            assert sorted(knows, key=str) == sorted(model.knows, key=str)
            on = [(row["src"], row["dst"]) for row in self.rows(branch, "edge:On")]
            assert sorted(on) == sorted(model.on)
            rates = {(row["src"], row["dst"]): row["stars"] for row in self.rows(branch, "edge:Rates")}
            assert rates == model.rates
        assert self.graph.pending_recoveries() == []


class TestMutations(Mutations.TestCase):
    settings = settings(max_examples=14, stateful_step_count=20)
