"""The two texts of a proposal: a schema and a mapping, each guess with a comment that says what it rests on."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence

from omnigraph.frozen import frozen
from omnigraph.inference.column_texts import STRING
from omnigraph.inference.columns import Column
from omnigraph.inference.design import Design, EdgeId, EdgeType, End, NodeType, Property, Rows, counted, listed
from omnigraph.inference.names import words_of
from omnigraph.inference.relations import Profile

#: Longer lines have their comment above.
_WIDTH = 118
#: What comments are aligned to is not further away than this.
_ALIGNED = 44


# ---- The schema


def schema_text(design: Design) -> str:
    """The schema as a person would write it, with the evidence of each guess."""
    blocks = [[_title(design)]]
    blocks += [list(_node_lines(node, design)) for node in design.nodes]
    blocks += [list(_edge_lines(edge, design)) for edge in design.edges]
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _title(design: Design) -> str:
    shown = [profile.table.shown for profile in design.profiles if profile.parent is None]
    return (
        f"// Proposed from {listed(shown, most=3)}. A comment says what a guess rests on: change what you know better."
    )


def _node_lines(node: NodeType, design: Design) -> Iterator[str]:
    profile = design.profiles[node.sources[0].table]
    if node.is_made:
        yield f"// {one_line(node.reason)}"
    else:
        yield f"// {profile.table.shown}, {profile.table.extent}" + ("" if node.key else f"; {node.reason}")
    yield f"node {node.name} {{"
    is_single = len(node.key) == 1
    lines = []
    for item in node.properties:
        is_key = is_single and item.name in node.key
        evidence = property_evidence(item)
        if is_key and not node.is_made:
            # That texts differ is the reason.
            is_plain = item.column.base == STRING and len(item.column.sources) == 1
            evidence = f"texts, {node.reason}" if is_plain else f"{evidence}; {node.reason}"
        lines.append((f"{item.name}: {item.type}{' @key' if is_key else ''}", evidence))
    if len(node.key) > 1:
        lines.append((f"@key({', '.join(node.key)})", f"together {node.reason}"))
    yield from _aligned(lines)
    yield from _left_out_lines(design, node.sources)
    yield "}"


def _edge_lines(edge: EdgeType, design: Design) -> Iterator[str]:
    profile = design.profiles[edge.rows.table]
    if edge.is_column:
        columns = " and ".join(f"`{column.name}`" for column in edge.target.columns)
        yield f"// {columns} of {profile.table.shown}: {end_evidence(edge.target)}"
    elif profile.parent is not None:
        yield f"// {profile.table.shown}: {end_evidence(edge.target)}"
    else:
        yield f"// {profile.table.shown}, {profile.table.extent}"
        for end in (edge.source, edge.target):
            names = " and ".join(f"`{column.name}`" for column in end.columns)
            yield f"// {names}: {end_evidence(end)}"
    for note in edge.notes:
        yield f"// {note}"
    # A column holds one value.
    card = " @card(0..1)" if edge.is_column else ""
    begin = f"edge {edge.name}: {edge.source.node} -> {edge.target.node}{card}"
    lines = [(f"{item.name}: {item.type}", property_evidence(item)) for item in edge.rows.properties]
    more = [] if edge.is_column else list(_left_out_lines(design, [edge.rows]))
    if not lines and not more:
        yield begin
        return
    yield f"{begin} {{"
    yield from _aligned(lines)
    yield from more
    yield "}"


def _left_out_lines(design: Design, sources: Sequence[Rows]) -> Iterator[str]:
    for rows in sources:
        if not rows.is_repeated:
            for item in design.profiles[rows.table].table.left_out:
                yield f"    // left out: `{one_line(item.name)}`, {item.reason}"


def _aligned(lines: Sequence[tuple[str, str]]) -> Iterator[str]:
    width = max((len(text) for text, _ in lines if len(text) <= _ALIGNED), default=0)
    for text, comment in lines:
        line = f"    {text:<{width}}  // {comment}"
        if len(line) <= _WIDTH:
            yield line
        else:
            yield f"    // {comment}"
            yield f"    {text}"


def property_evidence(item: Property) -> str:
    """What the guess about a property rests on."""
    column = item.column
    found = column.seen
    if column.nulls and column.nulls < column.rows:
        found += f"; {column.nulls:,} of {counted(column.rows, 'row')} {'is' if column.nulls == 1 else 'are'} empty"
    if column.name != item.name and column.words != words_of(item.name):
        found = f"`{column.name}`: {found}"
    return one_line(found)


def end_evidence(end: End) -> str:
    """What the guess about an end rests on."""
    values = counted(end.distinct, "different value")
    found = f"{end.matched:,} of {values} are keys of {end.node}"
    if end.distinct == 1:
        found = f"its value is{'' if end.matched else ' not'} a key of {end.node}"
    if end.is_made:
        found = f"{values}, each one a {end.node}"
    if end.nulls:
        found += f"; {counted(end.nulls, 'row')} {'is' if end.nulls == 1 else 'are'} empty"
    return found


def one_line(text: str) -> str:
    """A text without what would end a comment."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())


# ---- The mapping


@frozen
class _Noted:
    """A value with the comment behind it."""

    value: object
    comment: str


_Entry = dict[str, object]


def mapping_content(design: Design) -> dict[str, object]:
    """The mapping as a dictionary; the sources of files are as they were found."""
    return {name: _plain(types) for name, types in _mapping(design).items()}


def mapping_text(design: Design, folder: str) -> str:
    """The mapping as a YAML file in a folder, to which its sources are relative."""
    title = ["# Which files feed which types, and how they are read."]
    if any(edge.id is not None for edge in design.edges):
        title.append("# An edge with an `id` replaces itself when it is loaded again with --mode merge.")
    lines = [*title, *_yaml_lines(_relative(_mapping(design), folder), 0)]
    return "\n".join(lines) + "\n"


def _mapping(design: Design) -> _Entry:
    found: _Entry = {}
    if design.nodes:
        found["nodes"] = {
            node.name: _one_or_list([_node_entry(rows, node, design) for rows in node.sources]) for node in design.nodes
        }
    if design.edges:
        found["edges"] = {edge.name: _edge_entry(edge, design) for edge in design.edges}
    return found


def _one_or_list(entries: list[_Entry]) -> object:
    return entries[0] if len(entries) == 1 else entries


def _node_entry(rows: Rows, node: NodeType, design: Design) -> _Entry:
    profile = design.profiles[rows.table]
    entry = {} if rows.is_frame else _source(profile)
    entry |= _properties(rows.properties, profile, {name for item in rows.properties for name in item.column.sources})
    if rows.is_repeated:
        entry["duplicates"] = _Noted("first", "a value in many rows is one node")
        if any(item.column.nulls for item in rows.properties if item.name in node.key):
            entry["skip_null"] = _Noted(True, f"a row without a value names no {node.name}")
    elif rows.repeated:
        entry["duplicates"] = _Noted("first", f"{counted(rows.repeated, 'row')} with the key of another row")
    return entry | _timestamps(rows.properties)


def _edge_entry(edge: EdgeType, design: Design) -> _Entry:
    profile = design.profiles[edge.rows.table]
    entry = _source(profile)
    source, target = (_end_value(end, design) for end in (edge.source, edge.target))
    is_own = edge.is_column or profile.parent is not None
    entry["from"] = source if is_own else _Noted(source, end_evidence(edge.source))
    entry["to"] = _Noted(target, end_evidence(edge.target))
    used = {name for end in (edge.source, edge.target) for column in end.columns for name in column.sources}
    if edge.id is not None:
        entry["id"] = _id_value(edge.id)
        used |= {column.name for column in edge.id.columns}
    entry |= _properties(
        edge.rows.properties, profile, used | {name for item in edge.rows.properties for name in item.column.sources}
    )
    if edge.rows.repeated or (edge.id is not None and edge.id.repeated):
        count = max(edge.rows.repeated, 0 if edge.id is None else edge.id.repeated)
        entry["duplicates"] = _Noted("first", f"{counted(count, 'row')} with the same id as another row")
    if edge.source.nulls + edge.target.nulls:
        entry["skip_null"] = _Noted(True, "a row without a value is not an edge")
    dangling = [end for end in (edge.source, edge.target) if end.matched < end.distinct]
    if dangling:
        some = " and ".join(f"{end.distinct - end.matched:,} of {end.distinct:,}" for end in dangling)
        entry["dangling"] = _Noted("drop", f"{some} different values are not keys of {dangling[0].node}")
    return entry | _timestamps(edge.rows.properties)


def _timestamps(properties: Sequence[Property]) -> _Entry:
    rule = next((item.column.timestamps for item in properties if item.column.timestamps), None)
    return {} if rule is None else {"timestamps": _Noted(rule, "some times are finer than milliseconds")}


def _properties(properties: Sequence[Property], profile: Profile, used: set[str]) -> _Entry:
    """`columns` where names differ or columns are left out, and `properties` where values need steps."""
    entry: _Entry = {}
    names = {item.column.name: item.name for item in properties if not _MADE & item.column.steps.keys()}
    others = (
        {*profile.moved}
        | {name for column in profile.columns for name in column.sources}
        | {item.name for item in profile.table.left_out}
    )
    if profile.parent is not None or others - used or any(column != name for column, name in names.items()):
        entry["columns"] = names
    steps = {item.name: dict(item.column.steps) for item in properties if item.column.steps}
    return entry | ({"properties": steps} if steps else {})


#: Steps that name the columns themselves.
_MADE = {"concat", "first"}


def _end_value(end: End, design: Design) -> object:
    if len(end.columns) == 1:
        return _value(end.columns[0])
    node = next(node for node in design.nodes if node.name == end.node)
    return {member: _value(column) for member, column in zip(node.key, end.columns, strict=True)}


def _value(column: Column) -> object:
    if _MADE & column.steps.keys():
        return dict(column.steps)
    return {"column": column.name, **column.steps} if column.steps else column.name


def _id_value(given: EdgeId) -> object:
    if len(given.columns) == 1:
        return _value(given.columns[0])
    steps: _Entry = {}
    for column in given.columns:
        steps |= column.steps
    return {"concat": [column.name for column in given.columns], "separator": given.separator, **steps}


def _source(profile: Profile) -> _Entry:
    """Where the records are; columns that the files do not name have their names from the mapping."""
    entry: _Entry = dict(profile.table.entry)
    if "header" in entry:
        entry["header"] = [column.name for column in profile.columns]
    return entry


def _plain(value: object) -> object:
    if isinstance(value, _Noted):
        return _plain(value.value)
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _relative(value: object, folder: str) -> object:
    """The same with sources relative to a folder."""
    if isinstance(value, list):
        return [_relative(item, folder) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: _relative_path(str(item), folder) if name == "source" else _relative(item, folder)
        for name, item in value.items()
    }


def _relative_path(path: str, folder: str) -> str:
    if "://" in path or "://" in folder:
        return path
    found = os.path.relpath(path, folder)
    return path if found.startswith(os.path.join("..", "..", "..")) else found


# ---- YAML


_SAFE = re.compile(r"[A-Za-z_./][A-Za-z0-9_./ *-]*(?<! )|-?[0-9]+")
_NULLS = ("null", "~")
_INDENT = "  "


def _yaml_lines(value: object, depth: int) -> Iterator[str]:
    assert isinstance(value, dict), "a mapping has keys"
    for name, item in value.items():
        comment = ""
        if isinstance(item, _Noted):
            comment = f"  # {one_line(item.comment)}"
            item = item.value  # noqa: PLW2901
        begin = f"{_INDENT * depth}{_key(name)}:"
        if isinstance(item, list) and any(isinstance(part, dict) for part in item) and depth < 2:
            yield begin
            for part in item:
                lines = list(_yaml_lines(part, depth + 2))
                yield f"{_INDENT * (depth + 1)}- {lines[0].lstrip()}"
                yield from lines[1:]
        elif isinstance(item, dict) and item and _is_block(item, depth):
            yield begin + comment
            yield from _yaml_lines(item, depth + 1)
        else:
            yield f"{begin} {_flow(item)}{comment}"


_FLOW_WIDTH = 70


def _is_block(value: Mapping[str, object], depth: int) -> bool:
    return depth < 2 or (
        (any(isinstance(item, dict) for item in value.values()) or len(_flow(value)) > _FLOW_WIDTH) and depth < 3
    )


def _flow(value: object) -> str:
    match value:
        case dict():
            return "{" + ", ".join(f"{_key(name)}: {_flow(item)}" for name, item in value.items()) + "}"
        case list():
            return f"[{', '.join(map(_flow, value))}]"
    return _scalar(value)


def _key(name: str) -> str:
    # `null` is a key as any other.
    return name if _SAFE.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def _scalar(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    return text if _SAFE.fullmatch(text) and text.lower() not in _NULLS else json.dumps(text, ensure_ascii=False)
