"""Random histories of branches against a model of dictionaries: content, merges, past states, differences and feeds."""

from __future__ import annotations

import io
import shutil
import tempfile
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from omnigraph.core.ids import TableKey
from omnigraph.errors import BadRequestError, BranchNotFoundError, ChangeCursorRejectedError, NotFoundError
from omnigraph.graph.graph import Graph
from support.branch_model.checks import BranchChecks
from support.branch_model.model import (
    BRANCH,
    CHOICE,
    CLASHES,
    FEW_OPERATIONS,
    FIRST,
    NEW_BRANCHES,
    NEW_PERSON,
    OPERATIONS,
    PEOPLE,
    PROPERTIES,
    SCHEMA,
    STRATEGIES,
    Commit,
    GraphModel,
    Operation,
    Record,
    empty_state,
    from_lines,
    operation,
    records,
)

SIDES = {"one": BRANCH, "other": BRANCH, "strategy": STRATEGIES}
#: What a step does: a method, how often it comes up, and what it gets. One rule draws them all: rules of their own
#: would be left out of whole histories at random, and what a merge meets needs all the others.
STEPS: dict[str, tuple[int, dict[str, st.SearchStrategy[Any]]]] = {
    "write": (4, {"branch": BRANCH, "operations": st.lists(OPERATIONS, min_size=1, max_size=3)}),
    "create": (2, {"name": NEW_BRANCHES, "base": BRANCH}),
    "create_at_a_commit": (1, {"name": NEW_BRANCHES, "number": CHOICE}),
    "create_with_a_load": (1, {"name": NEW_BRANCHES, "base": BRANCH, "rows": st.lists(records(), max_size=2)}),
    "delete": (1, {"branch": BRANCH}),
    "merge": (
        4,
        {
            **SIDES,
            "mine": st.just([]) | FEW_OPERATIONS,
            "yours": st.just([]) | FEW_OPERATIONS,
            "delete": st.sampled_from([False, False, True]),
        },
    ),
    "clash": (3, {**SIDES, "writes": CLASHES, "is_turned": st.booleans()}),
    "try_to_merge": (2, SIDES),
    "everyone_takes_one": (1, {"third": BRANCH, "news": FEW_OPERATIONS, "strategy": STRATEGIES}),
    "cross": (2, {**SIDES, "mine": NEW_PERSON, "yours": NEW_PERSON, "later": NEW_PERSON}),
    "maintain": (2, {"branch": BRANCH, "key": st.sampled_from(["reopen", "index", *sorted(PROPERTIES)])}),
    "look_back": (2, {"one": CHOICE, "other": CHOICE, "branch": BRANCH, "name": PEOPLE}),
    "begin_to_follow": (1, {"branch": BRANCH, "has_baseline": st.booleans()}),
    "poll": (1, {"number": CHOICE, "limit": st.integers(1, 5), "max_commits": st.integers(1, 4)}),
}
ACTIONS = st.sampled_from([name for name, (often, _) in STEPS.items() for _ in range(often)]).flatmap(
    lambda name: operation(name, **STEPS[name][1])
)


@dataclass
class StoredCursor:
    """A cursor that somebody kept, and what it stands behind."""

    text: str
    branch: str
    incarnation: int
    commit: str


class Branches(BranchChecks, RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.root = tempfile.mkdtemp(prefix="branch-model-")
        self.graph = Graph.init(f"{self.root}/g", SCHEMA)
        head = self.graph.snapshot("main")
        self.model = GraphModel(version=head.graph_version - 1)
        self.model.create("main", head.commit_id, None)
        self.model.commits[head.commit_id] = Commit(
            id=head.commit_id,
            version=head.graph_version,
            incarnation=head.incarnation,
            parent=None,
            merged_parent=None,
            state=empty_state(),
        )
        self.cursors: list[StoredCursor] = []
        #: Whether the last step succeeded: the history behind a failure is nothing to look at.
        self.is_settled = False
        self.turn = 0
        #: The position of every branch that was read last.
        self.seen: dict[str, tuple[int, str]] = {}
        lines = [(key, it, row) for key, rows in FIRST.items() for it, row in rows.items()]
        self.load("main", "append", lines)
        self.create_branch("one", "main")

    def teardown(self) -> None:
        if not hasattr(self, "root"):
            return
        try:
            if self.is_settled:
                self.check_history()
        finally:
            shutil.rmtree(self.root)

    def check_history(self) -> None:
        """All that happened, at the end."""
        for place in range(len(self.cursors)):
            self.poll(place, 2, 3)
        for branch in self.model.branches:
            self.check_branch(branch)
            self.replay(branch)
        oldest, *others = sorted(self.model.readable(), key=lambda it: it.version)
        for commit in others[::3]:
            self.check_snapshot(commit)
            self.check_diff(commit.id, oldest.id)

    # ---- choosing

    def pick(self, number: int) -> str:
        names = sorted(self.model.branches)
        return names[number % len(names)]

    def pick_two(self, one: int, other: int) -> tuple[str, str]:
        """Two different branches; a second one is made if there is none."""
        if len(self.model.branches) == 1:
            self.create_branch("one", "main")
        names = sorted(self.model.branches)
        first = names.pop(one % len(names))
        return first, names[other % len(names)]

    def pick_commit(self, number: int) -> Commit:
        commits = sorted(self.model.readable(), key=lambda it: -it.version)
        return commits[number % len(commits)]

    @rule(action=ACTIONS)
    def act(self, action: Operation) -> None:
        name, values = action
        self.is_settled = False
        getattr(self, name)(**values)

    # ---- steps

    def write(self, branch: int, operations: list[Operation]) -> None:
        self.run(self.pick(branch), operations)

    def create(self, name: str, base: int) -> None:
        where = self.pick(base)
        if name in self.model.branches:
            with pytest.raises(BadRequestError):
                self.graph.create_branch(name, where)
        else:
            self.create_branch(name, where)

    def create_at_a_commit(self, name: str, number: int) -> None:
        commit = self.pick_commit(number)
        if name not in self.model.branches:
            self.graph.create_branch(name, commit.id)
            self.model.create(name, commit.id, commit.incarnation)

    def create_with_a_load(self, name: str, base: int, rows: list[Record]) -> None:
        if name not in self.model.branches:
            self.load(name, "merge", rows, base=self.pick(base))

    def delete(self, branch: int) -> None:
        where = self.pick(branch)
        if not self.model.can_delete(where):
            with pytest.raises(BadRequestError):
                self.graph.delete_branch(where)
            return
        head = self.model.commits[self.model.branches[where].head]
        self.graph.delete_branch(where)
        self.model.delete(where)
        if not self.model.is_readable(head):
            with pytest.raises(NotFoundError):
                self.graph.create_branch("again", head.id)

    def merge(
        self, one: int, other: int, mine: list[Operation], yours: list[Operation], strategy: str | None, delete: bool
    ) -> None:
        """Both sides may write before one takes over the other."""
        source, target = self.pick_two(one, other)
        self.run(source, mine)
        self.run(target, yours)
        self.run_merge(source, target, strategy, delete)

    def clash(
        self, one: int, other: int, writes: tuple[Operation, Operation], is_turned: bool, strategy: str | None
    ) -> None:
        """Two branches that were in step do what does not go together."""
        source, target = self.pick_two(one, other)
        self.run_merge(source, target, "theirs")
        self.run_merge(target, source, "theirs")
        self.run(source, [writes[is_turned]])
        self.run(target, [writes[not is_turned]])
        self.run_merge(source, target, strategy)

    def try_to_merge(self, one: int, other: int, strategy: str | None) -> None:
        """A dry run tells how a merge would end, and nothing else happens."""
        source, target = self.pick_two(one, other)
        plan = self.model.plan_merge(source, target, strategy)
        head = self.graph.snapshot(target)
        result = self.graph.merge(source, target, strategy=strategy, dry_run=True, engine="local")
        assert self.graph.snapshot(target) == head
        assert result.commit is None
        self.check_conflicts(plan, source, target, result.conflicts)
        if plan.is_possible:
            self.check_outcome(plan, target, result)
        else:
            assert result.outcome == "conflicts"

    def everyone_takes_one(self, third: int, news: list[Operation], strategy: str | None) -> None:
        """After two of these the others have several bases."""
        source = self.pick(third)
        self.run(source, news)
        for target in sorted(self.model.branches.keys() - {source}):
            self.run_merge(source, target, strategy)

    def cross(
        self, one: int, other: int, mine: Operation, yours: Operation, later: Operation, strategy: str | None
    ) -> None:
        """Each of two branches takes what the other one was before; the next merge has two bases."""
        first, second = self.pick_two(one, other)
        self.run(first, [mine])
        self.run(second, [yours])
        self.create_branch("crossing", first)
        self.run_merge(second, first, strategy)
        self.run_merge("crossing", second, strategy)
        self.graph.delete_branch("crossing")
        self.model.delete("crossing")
        self.run(second, [later])
        self.run_merge(second, first, None)

    def maintain(self, branch: int, key: str) -> None:
        """Open the graph again, build indexes, or compact a table."""
        if key == "reopen":
            self.graph.close()
            self.graph = Graph.open(f"{self.root}/g")
        elif key == "index":
            self.ensure_indices(self.pick(branch))
        else:
            self.compact(self.pick(branch), TableKey(key))

    def look_back(self, one: int, other: int, branch: int, name: str) -> None:
        """Commits, their changes and their differences, and a branch at an earlier version."""
        commit = self.pick_commit(one)
        self.check_snapshot(commit)
        self.check_entities(commit, name)
        self.check_changes(commit, limit=1 + other % 5)
        self.check_version(self.pick(branch), self.model.version + 1 - other)
        self.check_diff(commit.id, self.pick_commit(other).id)
        self.check_diff(self.pick(branch), commit.id)

    def begin_to_follow(self, branch: int, has_baseline: bool) -> None:
        where = self.pick(branch)
        known = self.model.branches[where]
        if has_baseline:
            out = io.StringIO()
            baseline = self.graph.baseline(where, out=out)
            assert from_lines(out.getvalue()) == self.model.state(where)
            assert baseline.snapshot_commit_id == known.head
            text = baseline.resume_cursor
        else:
            page = self.graph.feed(where)
            assert (page.blocks, page.caught_up) == ((), True)
            assert page.cursor is not None
            text = page.cursor
        self.cursors.append(StoredCursor(text, where, known.incarnation, known.head))

    def poll(self, number: int, limit: int, max_commits: int) -> None:
        """A cursor goes on where it stood, whatever happened meanwhile; never on a branch made again."""
        if not self.cursors:
            return
        cursor = self.cursors[number % len(self.cursors)]
        branch = self.model.branches.get(cursor.branch)
        if branch is None:
            with pytest.raises(BranchNotFoundError):
                self.graph.feed(cursor.branch, cursor.text)
        elif branch.incarnation != cursor.incarnation:
            with pytest.raises(ChangeCursorRejectedError):
                self.graph.feed(cursor.branch, cursor.text)
        else:
            told = self.model.commits[cursor.commit]
            text, last = self.follow(cursor.branch, told, limit, max_commits, cursor=cursor.text)
            cursor.text, cursor.commit = text, last.id

    # ---- after every step

    @invariant()
    def every_branch_holds_what_its_model_holds(self) -> None:
        """Branches that moved are read at once, the others in turn."""
        if not hasattr(self, "model"):
            return
        names = sorted(self.model.branches)
        assert self.graph.branches() == names
        self.turn += 1
        for number, name in enumerate(names):
            branch = self.model.branches[name]
            snapshot = self.graph.snapshot(name)
            assert (snapshot.incarnation, snapshot.commit_id) == (branch.incarnation, branch.head)
            seen = (branch.incarnation, branch.head)
            if self.seen.get(name) != seen or self.turn % len(names) == number:
                self.seen[name] = seen
                self.check_branch(name)
        assert self.graph.pending_recoveries() == []
        self.is_settled = True


class TestBranches(Branches.TestCase):
    settings = settings(max_examples=3, stateful_step_count=22)


@pytest.mark.slow
@pytest.mark.timeout(3600)
class TestLongHistoriesOfBranches(Branches.TestCase):
    settings = settings(max_examples=60, stateful_step_count=60)
