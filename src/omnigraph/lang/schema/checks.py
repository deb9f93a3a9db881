"""Static checks of a schema, S-03 to S-28."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Literal

from omnigraph.core.source import Findings, Span, did_you_mean
from omnigraph.core.types import NUMERICS, ListType, PropertyType, Scalar, ScalarType, VectorType, scalar_of
from omnigraph.frozen import frozen
from omnigraph.lang.parsing import SCALARS, pattern_problem, repeated
from omnigraph.lang.schema import ast
from omnigraph.lang.schema.catalog import EDGE_ENDS, unbuilt_index_reason

# ---- Whole declarations, and across them


_MAX_CARDINALITY = 2**32 - 1


def check_schema(schema: ast.Schema, findings: Findings, *, complete: bool = True, accepted: bool = False) -> None:
    """Record everything that is wrong with `schema`.

    With `complete=False` some declarations of the text did not parse: names that are declared nowhere are then no
    finding, because they may stand in the broken part. With `accepted=True` the text is the accepted contract of an
    existing graph, in which a body `@unique` over a Blob is tolerated.
    """
    declarations = schema.declarations
    world = _World(
        findings=findings,
        interfaces={d.name.text: d for d in declarations if isinstance(d, ast.InterfaceDecl)},
        nodes={d.name.text: d for d in declarations if isinstance(d, ast.NodeDecl)},
        complete=complete,
        accepted=accepted,
    )
    _check_names(schema, findings)
    for declaration in declarations:
        match declaration:
            case ast.InterfaceDecl():
                _check_interface(declaration, findings)
            case ast.NodeDecl():
                _check_node(declaration, world)
            case ast.EdgeDecl():
                _check_edge(declaration, world)


@frozen(kw_only=True)
class _World:
    """The other declarations, as the rules about one declaration see them."""

    findings: Findings
    interfaces: Mapping[str, ast.InterfaceDecl]
    nodes: Mapping[str, ast.NodeDecl]
    complete: bool
    accepted: bool


def effective_properties(
    node: ast.NodeDecl, interfaces: Mapping[str, ast.InterfaceDecl]
) -> dict[str, tuple[ast.Property, ast.InterfaceDecl | None]]:
    """Every property of a node with the interface that contributes it: the declared ones, then the injected ones."""
    properties: dict[str, tuple[ast.Property, ast.InterfaceDecl | None]] = {}
    for declared in ast.properties_of(node.members):
        properties.setdefault(declared.name.text, (declared, None))
    for name in node.implements:
        interface = interfaces.get(name.text)
        for contributed in interface.properties if interface else ():
            properties.setdefault(contributed.name.text, (contributed, interface))
    return properties


def _check_names(schema: ast.Schema, findings: Findings) -> None:
    seen: dict[tuple[type, str], ast.Name] = {}
    folded: dict[str, ast.Name] = {}
    for declaration in schema.declarations:
        name, kind = declaration.name, type(declaration)
        if (kind, name.text) in seen:
            word = _KIND_WORDS[kind]
            findings.error("S-25", name.span, f"{word} `{name.text}` is declared twice")
            continue
        seen[kind, name.text] = name
        if isinstance(declaration, ast.EdgeDecl):
            other = folded.setdefault(name.text.casefold(), name)
            if other is not name:
                message = f"edges `{other.text}` and `{name.text}` differ only in case"
                hint = "queries find an edge whatever its case: give one of them another name"
                findings.error("S-27", name.span, message, hint)


_KIND_WORDS: dict[type, str] = {ast.InterfaceDecl: "interface", ast.NodeDecl: "node", ast.EdgeDecl: "edge"}


def _check_duplicate_properties(properties: Iterable[ast.Property], findings: Findings) -> None:
    for prop in repeated(properties, lambda prop: prop.name.text):
        findings.error("S-25", prop.name.span, f"property `{prop.name.text}` is declared twice")


def _check_interface(interface: ast.InterfaceDecl, findings: Findings) -> None:
    _check_duplicate_properties(interface.properties, findings)
    types: dict[str, PropertyType | None] = {}
    for prop in interface.properties:
        type_ = resolve_type(prop.type, findings)
        _check_property(prop, type_, findings, owner="interface")
        types.setdefault(prop.name.text, type_)
    for prop in interface.properties:
        # A source that the interface lacks may come from the implementer: that is checked there.
        _check_embedding(prop, types, findings, owner=None)
        _check_nullable_key(prop, types[prop.name.text], findings)


def _check_node(node: ast.NodeDecl, world: _World) -> None:
    findings = world.findings
    _check_header_annotations(node.headers, findings)
    declared = ast.properties_of(node.members)
    _check_duplicate_properties(declared, findings)
    for prop in declared:
        _check_property(prop, resolve_type(prop.type, findings), findings, owner="node")
    names_known = _check_implements(node, world) or world.complete
    properties = effective_properties(node, world.interfaces)
    types = {name: resolve_type(prop.type) for name, (prop, _) in properties.items()}
    owner = node.name.text if names_known else None
    for name, (prop, interface) in properties.items():
        _check_embedding(prop, types, findings, owner=owner, checked=interface)
        if interface is None:
            _check_nullable_key(prop, types[name], findings)
    for constraint in ast.constraints_of(node.members):
        _check_constraint(constraint, types, world, names_known=names_known)
    _check_key(node, properties, findings)


def _check_implements(node: ast.NodeDecl, world: _World) -> bool:
    """Check the interfaces of a node; whether all of them are known."""
    findings = world.findings
    declared = {prop.name.text: prop for prop in ast.properties_of(node.members)}
    contributed: dict[str, tuple[str, ast.Property]] = {}
    all_known = True
    for name in node.implements:
        interface = world.interfaces.get(name.text)
        if interface is None:
            all_known = False
            _report_unknown_interface(name, world)
            continue
        for prop in interface.properties:
            own = declared.get(prop.name.text)
            if own is not None:
                _check_same_type(own, prop, interface, findings)
                continue
            first_name, first = contributed.setdefault(prop.name.text, (name.text, prop))
            if _semantics_of(first) != _semantics_of(prop):
                message = (
                    f"interfaces `{first_name}` and `{name.text}` contribute property "
                    f"`{prop.name.text}` with different meanings"
                )
                findings.error("S-10", name.span, message)
    return all_known


def _report_unknown_interface(name: ast.Name, world: _World) -> None:
    if name.text in world.nodes:
        world.findings.error("S-08", name.span, f"`{name.text}` is a node type, not an interface")
    elif world.complete:
        message = f"interface `{name.text}` is not declared"
        world.findings.error("S-08", name.span, message, partial(did_you_mean, name.text, world.interfaces))


def _check_same_type(own: ast.Property, wanted: ast.Property, interface: ast.InterfaceDecl, findings: Findings) -> None:
    own_type, wanted_type = resolve_type(own.type), resolve_type(wanted.type)
    if own_type and wanted_type and own_type != wanted_type:
        message = (
            f"property `{own.name.text}` is {own_type}, but interface `{interface.name.text}` declares {wanted_type}"
        )
        findings.error("S-09", own.type.span, message)


def _check_embedding(
    prop: ast.Property,
    types: Mapping[str, PropertyType | None],
    findings: Findings,
    *,
    owner: str | None,
    checked: ast.InterfaceDecl | None = None,
) -> None:
    """Check the source of `@embed`; without `owner` a source that is not there may still come from elsewhere.

    A source that the interface `checked` declares itself was judged with that interface.
    """
    for annotation in prop.annotations:
        if annotation.name != "embed" or not annotation.values:
            continue
        source = annotation.values[0]
        if not isinstance(source.value, str) or not source.value.strip():
            continue
        name = source.value
        if checked and any(item.name.text == name for item in checked.properties):
            continue
        if name not in types:
            if owner is not None:
                message = f"`@embed` names property `{name}`, which node `{owner}` does not have"
                findings.error("S-17", source.span, message, partial(did_you_mean, name, types))
        elif (type_ := types[name]) and type_.base != ScalarType(Scalar.STRING):
            findings.error("S-17", source.span, f"`@embed` needs a String source, `{name}` is {type_}")


def _check_nullable_key(prop: ast.Property, type_: PropertyType | None, findings: Findings) -> None:
    for annotation in prop.annotations:
        if annotation.name == "key" and type_ and type_.nullable:
            hint = f"make it required: `{prop.name.text}: {type_.base}`"
            findings.error("S-22", annotation.span, f"key member `{prop.name.text}` may be null", hint)


def _check_constraint(
    constraint: ast.Constraint,
    types: Mapping[str, PropertyType | None],
    world: _World,
    *,
    names_known: bool,
    on_edge: bool = False,
) -> None:
    findings = world.findings
    match constraint:
        case ast.MemberConstraint():
            members = _check_members(constraint, types, findings, complete=names_known, on_edge=on_edge)
            for member in members:
                type_ = types.get(member.name)
                if type_ is not None and not _is_tolerated(constraint, type_, world):
                    _check_member_type(constraint.kind, member, type_, findings)
            if constraint.kind == "index":
                names = [member.name for member in members]
                _warn_of_unbuilt_index(constraint.span, names, types, findings, on_edge=on_edge)
        case ast.RangeConstraint(name, low, high):
            type_ = _known_type(name, types, findings, complete=names_known)
            if type_ and scalar_of(type_.base) not in NUMERICS:
                findings.error("S-24", name.span, f"`@range` needs a number, `{name.text}` is {type_}")
            _check_bounds(constraint, low, high, findings)
        case ast.CheckConstraint(name, pattern):
            type_ = _known_type(name, types, findings, complete=names_known)
            if type_ and type_.base != ScalarType(Scalar.STRING):
                findings.error("S-24", name.span, f"`@check` needs a String, `{name.text}` is {type_}")
            if problem := pattern_problem(pattern):
                findings.error("S-28", constraint.span, f"`@check` has a bad pattern: {problem}")


def _warn_of_unbuilt_index(
    span: Span, names: Sequence[str], types: Mapping[str, PropertyType | None], findings: Findings, *, on_edge: bool
) -> None:
    """S-32: an index intent without an index; queries give the same rows, so it stops nothing."""
    known = {name: type_ for name in names if (type_ := types.get(name)) is not None}
    if not names or len(known) != len(names):
        # What is wrong with the others is an error of its own.
        return
    if reason := unbuilt_index_reason(names, known, on_edge=on_edge):
        message = f"`@index({', '.join(names)})` is recorded and not built: {reason}"
        hint = None if on_edge or len(names) == 1 else "write `@index` on each property to search"
        findings.warning("S-32", span, message, hint)


def _is_tolerated(constraint: ast.MemberConstraint, type_: PropertyType, world: _World) -> bool:
    """The one shape that old accepted contracts may have: a body `@unique` over a Blob."""
    is_blob = type_.base == ScalarType(Scalar.BLOB)
    return world.accepted and constraint.kind == "unique" and is_blob


def _check_bounds(
    constraint: ast.RangeConstraint, low: ast.Number | None, high: ast.Number | None, findings: Findings
) -> None:
    unreasonable = [bound for bound in (low, high) if bound and not bound.is_reasonable]
    for bound in unreasonable:
        findings.error("S-28", bound.span, "the bound is beyond every number that is stored")
    if low and high and not unreasonable and low.value > high.value:
        findings.error("S-28", constraint.span, f"`@range` is empty: {low.text} is above {high.text}")


def _check_members(
    constraint: ast.MemberConstraint,
    types: Mapping[str, PropertyType | None],
    findings: Findings,
    *,
    complete: bool,
    on_edge: bool,
) -> list[ast.Value]:
    """The members that name a property."""
    good: list[ast.Value] = []
    seen: set[str] = set()
    for member in constraint.members:
        name = member.name
        is_property = isinstance(member.value, bool) and name in types
        if not member.bare and not is_property:
            findings.error("S-12", member.span, f"`@{constraint.kind}` takes no value: it lists property names")
        elif member.text.startswith("@") and not on_edge:
            findings.error("S-20", member.span, f"`{member.text}` is an end of an edge, and this is a node")
        elif name in seen:
            findings.error("S-28", member.span, f"`@{constraint.kind}` lists `{name}` twice")
        elif _known_type(ast.Name(name, member.span), types, findings, complete=complete):
            good.append(member)
        seen.add(name)
    return good


def _known_type(
    name: ast.Name, types: Mapping[str, PropertyType | None], findings: Findings, *, complete: bool
) -> PropertyType | None:
    if name.text not in types:
        if complete:
            message = f"there is no property `{name.text}` here"
            findings.error("S-20", name.span, message, partial(did_you_mean, name.text, types))
        return None
    return types[name.text]


def _check_member_type(kind: str, member: ast.Value, type_: PropertyType, findings: Findings) -> None:
    name = member.name
    match type_.base:
        case ScalarType(Scalar.BLOB):
            findings.error("S-15", member.span, f"`@{kind}` cannot hold `{name}`, which is a Blob")
        case ListType() | VectorType() if kind == "key":
            findings.error("S-22", member.span, f"key member `{name}` is {type_}: a key holds single values only")
        case ListType() | VectorType() if kind == "unique":
            findings.error("S-28", member.span, f"`@unique` cannot hold `{name}`, which is {type_}")
        case _ if kind == "key" and type_.nullable:
            hint = f"make it required: `{name}: {type_.base}`"
            findings.error("S-22", member.span, f"key member `{name}` may be null", hint)


def _check_key(
    node: ast.NodeDecl, properties: Mapping[str, tuple[ast.Property, ast.InterfaceDecl | None]], findings: Findings
) -> None:
    # Each property counts once: `@key` written twice on one property is S-12.
    on_properties = {
        name: annotation.span
        for name, (prop, _) in properties.items()
        for annotation in prop.annotations
        if annotation.name == "key"
    }
    in_body = (
        c.span for c in ast.constraints_of(node.members) if isinstance(c, ast.MemberConstraint) and c.kind == "key"
    )
    _refuse_more_keys(f"node `{node.name.text}`", chain(on_properties.values(), in_body), "@key(a, b)", findings)


def _refuse_more_keys(owner: str, spans: Iterable[Span], form: str, findings: Findings) -> None:
    for span in sorted(spans)[1:]:
        hint = f"a key over several properties is written once in the body: `{form}`"
        findings.error("S-21", span, f"{owner} has more than one key", hint)


def _check_edge(edge: ast.EdgeDecl, world: _World) -> None:
    findings = world.findings
    _check_header_annotations(edge.headers, findings)
    for endpoint in (edge.source, edge.target):
        if endpoint.text not in world.nodes and world.complete:
            is_interface = endpoint.text in world.interfaces
            what = "is an interface, not a node type" if is_interface else "is not a declared node type"
            hint = None if is_interface else partial(did_you_mean, endpoint.text, world.nodes)
            findings.error("S-26", endpoint.span, f"endpoint `{endpoint.text}` {what}", hint)
    if edge.card:
        _check_card(edge.card, findings)
    properties = ast.properties_of(edge.members)
    _check_duplicate_properties(properties, findings)
    types: dict[str, PropertyType | None] = {}
    for prop in properties:
        type_ = resolve_type(prop.type, findings)
        _check_property(prop, type_, findings, owner="edge")
        types.setdefault(prop.name.text, type_)
        for annotation in prop.annotations:
            if annotation.name == "index":
                name = prop.name.text
                _warn_of_unbuilt_index(annotation.span, [name], types, findings, on_edge=True)
    columns = dict.fromkeys(EDGE_ENDS, PropertyType(ScalarType(Scalar.STRING)))
    for constraint in ast.constraints_of(edge.members):
        if not isinstance(constraint, ast.MemberConstraint):
            findings.error(
                "S-23", constraint.span, f"`@{constraint.kind}` belongs to node types, `{edge.name.text}` is an edge"
            )
            continue
        _check_constraint(constraint, {**columns, **types}, world, names_known=True, on_edge=True)
    _check_edge_key(edge, findings)


def _check_edge_key(edge: ast.EdgeDecl, findings: Findings) -> None:
    """Check that an edge has one key at most, and that both ends are in it."""
    keys = [c for c in ast.constraints_of(edge.members) if isinstance(c, ast.MemberConstraint) and c.kind == "key"]
    for key in keys:
        names = [member.name for member in key.members]
        if missing := [end for end in EDGE_ENDS if end not in names]:
            others = [name for name in names if name not in EDGE_ENDS]
            message = f"the key of edge `{edge.name.text}` lacks {' and '.join(f'`{end}`' for end in missing)}"
            hint = f"an edge is known by both of its ends: `@key({', '.join([*EDGE_ENDS, *others])})`"
            findings.error("S-23", key.span, message, hint)
    _refuse_more_keys(f"edge `{edge.name.text}`", (key.span for key in keys), "@key(src, dst, a)", findings)


def _check_card(card: ast.Card, findings: Findings) -> None:
    bounds = [bound for bound in (card.low, card.high) if bound]
    for bound in bounds:
        if not isinstance(bound.value, int) or not 0 <= bound.value <= _MAX_CARDINALITY:
            findings.error("S-07", bound.span, f"`@card` bounds are whole numbers from 0 to {_MAX_CARDINALITY}")
            return
    if card.high and card.low.value > card.high.value:
        findings.error("S-07", card.span, f"`@card` is empty: {card.low.text} is above {card.high.text}")


# ---- One property and its annotations


Owner = Literal["interface", "node", "edge"]

#: Columns that Lance adds to every row; a property of the same name would hide them.
VIRTUAL_COLUMNS = frozenset(
    {"_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version"}
)
_EDGE_RESERVED = frozenset({"src", "dst", "from", "to"})
_RULES = ("key", "unique", "index", "embed")
_TEXTS = ("description", "instruction")


def _check_property(prop: ast.Property, type_: PropertyType | None, findings: Findings, *, owner: Owner) -> None:
    """Check one property; `type_` is None when its type is wrong already."""
    _check_reserved(prop, findings, owner)
    _check_repeated_rules(prop, findings)
    _check_texts(prop.annotations, findings, on_property=True)
    _check_rename(prop.annotations, findings)
    _check_single_values(prop.annotations, findings)
    for annotation in prop.annotations:
        if annotation.name not in _RULES:
            continue
        if owner == "edge" and annotation.name in ("key", "embed"):
            message = f"`@{annotation.name}` belongs to node types, not to a property of an edge"
            is_key = annotation.name == "key"
            hint = f"the key of an edge is written in its body: `@key(src, dst, {prop.name.text})`" if is_key else None
            findings.error("S-16", annotation.span, message, hint)
        elif type_ is not None:
            _check_rule_type(annotation, prop, type_, findings)
        if annotation.name == "embed":
            _check_embed_arguments(annotation, findings)


def _check_header_annotations(headers: tuple[ast.Header, ...], findings: Findings) -> None:
    for header in headers:
        name = header.name if isinstance(header, ast.Annotation) else header.kind
        if name in _RULES or not isinstance(header, ast.Annotation):
            message = f"`@{name}` belongs to a property or into the body, not on the declaration"
            findings.error("S-11", header.span, message)
    annotations = ast.annotations_of(headers)
    _check_texts(annotations, findings, on_property=False)
    _check_rename(annotations, findings)
    _check_single_values(annotations, findings)


def _semantics_of(prop: ast.Property) -> tuple[object, ...]:
    """The meaning of a property, for comparing the contributions of two interfaces."""
    annotations = sorted(
        (a.name, [repr(v.meaning) for v in a.values], [(k.text, repr(v.meaning)) for k, v in a.keywords])
        for a in prop.annotations
        if a.name != "rename_from"
    )
    type_ = prop.type
    return (type_.form, type_.nullable, type_.name, sorted(type_.values), type_.dimension, annotations)


def _check_reserved(prop: ast.Property, findings: Findings, owner: Owner) -> None:
    name = prop.name.text
    if name in VIRTUAL_COLUMNS:
        findings.error("S-03", prop.name.span, f"`{name}` is a column of the storage layer")
    elif name == "id":
        hint = "the id of an entity is derived from its `@key`, or generated"
        findings.error("S-03", prop.name.span, "`id` is reserved: every entity has one", hint)
    elif owner == "edge" and name in _EDGE_RESERVED:
        findings.error("S-03", prop.name.span, f"`{name}` is reserved: it names an end of the edge")


def _check_repeated_rules(prop: ast.Property, findings: Findings) -> None:
    rules = (annotation for annotation in prop.annotations if annotation.name in _RULES)
    for annotation in repeated(rules, lambda annotation: annotation.name):
        findings.error("S-12", annotation.span, f"`@{annotation.name}` stands twice on `{prop.name.text}`")


def _check_rule_type(annotation: ast.Annotation, prop: ast.Property, type_: PropertyType, findings: Findings) -> None:
    name, text = annotation.name, prop.name.text
    match type_.base:
        case ListType():
            findings.error("S-13", annotation.span, f"`@{name}` cannot stand on the list `{text}`")
        case VectorType() if name in ("key", "unique"):
            findings.error("S-14", annotation.span, f"`@{name}` cannot stand on the vector `{text}`")
        case ScalarType(Scalar.BLOB):
            findings.error("S-15", annotation.span, f"`@{name}` cannot stand on the Blob `{text}`")
        case VectorType():
            pass
        case _ if name == "embed":
            findings.error("S-17", annotation.span, f"`@embed` needs a vector, `{text}` is {type_}")


def _check_embed_arguments(annotation: ast.Annotation, findings: Findings) -> None:
    hint = 'write `@embed("source")` or `@embed("source", model="name")`'
    if not annotation.values or not str(annotation.values[0].value).strip():
        findings.error("S-17", annotation.span, "`@embed` names no source property", hint)
    elif not isinstance(annotation.values[0].value, str):
        findings.error("S-17", annotation.values[0].span, "`@embed` needs a property name", hint)
    for extra in annotation.values[1:]:
        findings.error("S-17", extra.span, "`@embed` takes one source", hint)
    for keyword, value in annotation.keywords:
        if keyword.text != "model":
            findings.error("S-17", keyword.span, f"`@embed` has no setting `{keyword.text}`", hint)
        elif not isinstance(value.value, str) or not value.value.strip():
            findings.error("S-17", value.span, "`model` is a non-empty string", hint)
    for keyword, _ in repeated(annotation.keywords, lambda pair: pair[0].text):
        findings.error("S-17", keyword.span, f"`{keyword.text}` is given twice", hint)


def _check_texts(annotations: Iterable[ast.Annotation], findings: Findings, *, on_property: bool) -> None:
    seen: Counter[str] = Counter()
    for annotation in annotations:
        if annotation.name not in _TEXTS:
            continue
        seen[annotation.name] += 1
        if on_property and annotation.name == "instruction":
            findings.error("S-18", annotation.span, "`@instruction` belongs to a node or edge, not to a property")
        elif seen[annotation.name] > 1:
            findings.error("S-18", annotation.span, f"`@{annotation.name}` is given twice")
        elif not _is_one_text(annotation):
            findings.error("S-18", annotation.span, f"`@{annotation.name}` needs one non-blank string")


def _check_rename(annotations: Iterable[ast.Annotation], findings: Findings) -> None:
    hints = [annotation for annotation in annotations if annotation.name == "rename_from"]
    for annotation in hints[1:]:
        findings.error("S-19", annotation.span, "`@rename_from` is given twice")
    for annotation in hints[:1]:
        if not _is_one_text(annotation):
            message = "`@rename_from` needs one non-blank name and nothing else"
            findings.error("S-19", annotation.span, message, 'write `@rename_from("OldName")`')


def _check_single_values(annotations: Iterable[ast.Annotation], findings: Findings) -> None:
    known = {*_RULES, *_TEXTS, "rename_from"}
    for annotation in annotations:
        for _, value in annotation.keywords:
            if value.bare:
                findings.error("S-01", value.span, "the value of a key is a literal", 'write `key="value"`')
        if annotation.name in known:
            continue
        first_key = annotation.keywords[0][0].span.start if annotation.keywords else None
        is_ordered = first_key is None or (len(annotation.values) == 1 and annotation.values[0].span.start < first_key)
        if len(annotation.values) > 1 or not is_ordered:
            findings.error("S-01", annotation.span, f"`@{annotation.name}` takes one value and then `key=value` pairs")


def _is_one_text(annotation: ast.Annotation) -> bool:
    if len(annotation.values) != 1 or annotation.keywords:
        return False
    value = annotation.values[0].value
    return isinstance(value, str) and bool(value.strip())


# ---- Resolution of written types


_TYPE_CODES = {"unknown": "S-01", "vector": "S-04", "list": "S-05", "enum": "S-06"}
_TYPE_WORDS = [*SCALARS, "Vector", "enum"]


def resolve_type(expr: ast.TypeExpr, findings: Findings | None = None) -> PropertyType | None:
    """The type of an expression, or None when it is wrong; why it is wrong goes to `findings`."""
    type_ = expr.resolved()
    if isinstance(type_, PropertyType):
        return type_
    if findings and type_.kind == "unknown":
        hint = partial(did_you_mean, expr.name, _TYPE_WORDS)
        findings.error("S-01", expr.span, f"found `{expr.name}`, expected a type", hint)
    elif findings:
        findings.error(_TYPE_CODES[type_.kind], expr.span, type_.message)
    return None
