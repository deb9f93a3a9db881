"""What a random history of branches is made of: rows, writes, and the lines in which a load and an export speak."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

from hypothesis import strategies as st

from support.branch_model.model import (
    ENDS,
    KNOWS,
    LEADS,
    ON,
    PERSON,
    PROPERTIES,
    TEAM,
    Row,
    State,
    empty_state,
    make_row,
)

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
    operation(
        "join", key=st.just(LEADS), name=PEOPLE, teams=st.lists(TEAMS, min_size=1, max_size=3)
    ),
    operation("update_people", age=SMALL, note=TEXTS, badge=CODES),
    operation("delete_people", name=PEOPLE, badge=CODES),
    operation("delete_team", name=TEAMS),
    operation(
        "delete_edges",
        key=st.sampled_from(sorted(ENDS)),
        end=st.sampled_from(["from", "to"]),
        name=PEOPLE | TEAMS,
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
        (
            ("insert_team", {"name": "t", "city": "", "size": 1}),
            ("insert_team", {"name": "v", "city": "", "size": 1}),
        ),
        (
            ("meet", {"name": "a", "friend": "b", "since": None}),
            ("delete_people", {"name": "b", "badge": None}),
        ),
        (
            ("delete_edges", {"key": LEADS, "end": "to", "name": "a"}),
            ("delete_edges", {"key": LEADS, "end": "to", "name": "t"}),
        ),
        (
            ("join", {"key": ON, "name": "b", "teams": ["t", "t"]}),
            ("join", {"key": ON, "name": "b", "teams": ["u"]}),
        ),
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
