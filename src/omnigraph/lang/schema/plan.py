"""Migration planning: accepted schema and wanted schema in, ordered steps out.

A pure function. Accepted names are first translated into wanted names through the identity resolution, so a rename
never looks like a drop and an add. What no step can express becomes `UnsupportedChange`; nothing is ever guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from omnigraph.core.types import EnumType, PropertyType, Scalar, ScalarType, is_wider
from omnigraph.core.values import quote
from omnigraph.errors import BadRequestError
from omnigraph.frozen import frozen
from omnigraph.lang.schema.accepted import (
    AcceptedSchema,
    Resolution,
    declared_types,
    match_accepted,
    resolve_identities,
)
from omnigraph.lang.schema.backfill import Backfill, pick_backfill, read_backfill
from omnigraph.lang.schema.catalog import (
    EDGE_ENDS,
    Cardinality,
    Catalog,
    EdgeDef,
    InterfaceDef,
    MemberSet,
    NodeDef,
    PropertyDef,
    TypeKind,
)
from omnigraph.lang.schema.compiler import CompiledSchema
from omnigraph.lang.schema.steps import (
    AddConstraint,
    AddProperty,
    AddType,
    DropMode,
    DropProperty,
    DropType,
    ExtendEnum,
    LintCode,
    RenameProperty,
    RenameType,
    SchemaSteps,
    Step,
    TightenNullability,
    UnsupportedChange,
    UpdatePropertyMetadata,
    UpdateTypeMetadata,
    WidenProperty,
)

Declared = InterfaceDef | NodeDef | EdgeDef


@frozen(kw_only=True)
class MigrationPlan(SchemaSteps):
    """The way from an accepted schema to a wanted one."""

    resolution: Resolution
    #: Wanted type and property → the value that existing rows get.
    backfills: Mapping[tuple[TypeKind, str, str], Backfill]


@frozen(kw_only=True)
class _Pair:
    """One type that both schemas have, with the translation of accepted names into wanted ones."""

    kind: TypeKind
    name: str
    accepted: Declared
    wanted: Declared
    #: accepted property → wanted property, for those that go on.
    properties: Mapping[str, str]
    #: (kind, accepted type) → wanted type, for those that go on.
    types: Mapping[tuple[TypeKind, str], str]
    backfills: _Backfills

    def backfill(self, new: PropertyDef) -> str | None:
        """The backfill of a property, as it was written."""
        if isinstance(self.accepted, InterfaceDef):
            return None
        return self.backfills.take(self.kind, self.name, new, self.accepted)

    def unsupported(self, reason: str, *, member: str | None = None, code: LintCode | None = None) -> UnsupportedChange:
        entity = f"{self.kind}:{self.name}" + (f".{member}" if member else "")
        return UnsupportedChange(entity=entity, reason=reason, code=code)


class _Backfills:
    """The backfills of the caller, and those that were used."""

    def __init__(self, given: Mapping[str, object], *, is_past: bool = False) -> None:
        self._given = given
        #: Whether existing rows got their values long ago.
        self.is_past = is_past
        self._used: set[str] = set()
        self.read: dict[tuple[TypeKind, str, str], Backfill] = {}

    def take(self, kind: TypeKind, type_name: str, new: PropertyDef, accepted: NodeDef | EdgeDef) -> str | None:
        found = pick_backfill(self._given, kind, type_name, new.name)
        if found is None:
            return None
        target, value = found
        self._used.add(target)
        backfill = read_backfill(target, value, new.type, accepted)
        self.read[kind, type_name, new.name] = backfill
        return backfill.text

    def pass_over(self, wanted: Catalog) -> None:
        """Let those be that are about properties which are there: the change they belong to has happened before."""
        for (kind, type_name), declared in declared_types(wanted):
            for name in declared.properties:
                found = pick_backfill(self._given, kind, type_name, name)
                self._used |= set() if found is None else {found[0]}

    def check_all_used(self) -> None:
        unused = sorted(set(self._given) - self._used)
        if unused:
            raise BadRequestError(
                f"the backfill of {unused[0]} has no use: it is neither a new property of an existing type nor "
                "one that becomes required"
            )


def plan_migration(
    accepted: AcceptedSchema,
    wanted: CompiledSchema,
    *,
    allow_data_loss: bool = False,
    backfill: Mapping[str, object] | None = None,
) -> MigrationPlan:
    """The plan from `accepted` to `wanted`.

    With `allow_data_loss` every drop is hard. `backfill` maps `Type.property` to the value of existing rows.

    Raises:
        CompilerError: a rename hint is wrong.
        BadRequestError: a backfill is wrong, or about nothing.
    """
    catalog = wanted.catalog
    resolution = resolve_identities(accepted.identities, catalog, wanted.source)
    mode = DropMode.HARD if allow_data_loss else DropMode.SOFT
    backfills = _Backfills(backfill or {})
    steps = [*_changes(accepted.catalog, catalog, resolution, backfills)]
    steps += _drops(accepted.catalog, resolution, mode)
    if not steps:
        # A change that is repeated because its outcome is unknown brings its backfills again.
        backfills.pass_over(catalog)
    backfills.check_all_used()
    if not steps and accepted.catalog.schema_hash != catalog.schema_hash:
        steps.append(UnsupportedChange(entity="schema", reason="the schemas differ in a way that no step covers"))
    return MigrationPlan(
        steps=tuple(steps),
        resolution=resolution,
        backfills=backfills.read,
        warnings=wanted.warnings + resolution.warnings,
    )


def plan_between(accepted: AcceptedSchema, later: AcceptedSchema) -> MigrationPlan:
    """The steps between two schemas that one graph has accepted. What filled required properties is not known."""
    resolution = match_accepted(accepted.identities, later.identities)
    backfills = _Backfills({}, is_past=True)
    steps = [*_changes(accepted.catalog, later.catalog, resolution, backfills)]
    steps += _drops(accepted.catalog, resolution, DropMode.SOFT)
    return MigrationPlan(steps=tuple(steps), resolution=resolution, backfills={})


def _changes(accepted: Catalog, wanted: Catalog, resolution: Resolution, backfills: _Backfills) -> Iterator[Step]:
    old = dict(declared_types(accepted))
    types = {(kind, origin): name for (kind, name), origin in resolution.type_origins.items()}
    for key, declared in declared_types(wanted):
        kind, name = key
        origin = resolution.type_origins.get(key)
        if origin is None:
            yield AddType(type_kind=kind, type_name=name)
            continue
        pair = _Pair(
            kind=kind,
            name=name,
            accepted=old[kind, origin],
            wanted=declared,
            properties={was: now for now, was in resolution.property_origins[key].items()},
            types=types,
            backfills=backfills,
        )
        yield from _type_changes(pair)
        yield from _property_changes(pair)
        yield from _constraint_changes(pair)


def _type_changes(pair: _Pair) -> Iterator[Step]:
    old, new = pair.accepted, pair.wanted
    if old.name != new.name:
        yield RenameType(type_kind=pair.kind, old_name=old.name, new_name=new.name)
    if isinstance(old, InterfaceDef) or isinstance(new, InterfaceDef):
        return
    if isinstance(old, NodeDef) and isinstance(new, NodeDef) and old.implements != new.implements:
        yield pair.unsupported("changing what a node implements is not supported")
    if old.metadata.annotations != new.metadata.annotations:
        yield pair.unsupported("only @description and @instruction may change; other annotations are fixed")
    texts = (new.metadata.description, new.metadata.instruction)
    if (old.metadata.description, old.metadata.instruction) != texts:
        yield UpdateTypeMetadata(type_kind=pair.kind, type_name=pair.name, description=texts[0], instruction=texts[1])
    if isinstance(old, EdgeDef) and isinstance(new, EdgeDef):
        yield from _edge_changes(pair, old, new)


def _edge_changes(pair: _Pair, old: EdgeDef, new: EdgeDef) -> Iterator[Step]:
    ends = tuple(pair.types.get((TypeKind.NODE, end)) for end in (old.source, old.target))
    if ends != (new.source, new.target):
        yield pair.unsupported("the endpoints of an edge are fixed: existing edges may not fit new ones")
    if old.cardinality == new.cardinality:
        return
    if _is_tighter(old.cardinality, new.cardinality):
        yield AddConstraint(
            type_kind=pair.kind,
            type_name=pair.name,
            constraint="card",
            members=(),
            detail=str(new.cardinality),
            validate=True,
        )
        return
    yield pair.unsupported(
        f"@card cannot change from {old.cardinality} to {new.cardinality}: that would relax the schema"
    )


def _is_tighter(old: Cardinality, new: Cardinality) -> bool:
    """Whether everything that the new bounds allow was allowed before."""
    keeps_high = old.high is None or (new.high is not None and new.high <= old.high)
    return new.low >= old.low and keeps_high


def _property_changes(pair: _Pair) -> Iterator[Step]:
    origins = {now: was for was, now in pair.properties.items()}
    for name in sorted(pair.wanted.properties):
        new = pair.wanted.properties[name]
        origin = origins.get(name)
        if origin is None:
            yield _addition(pair, new)
            continue
        old = pair.accepted.properties[origin]
        if origin != name:
            yield RenameProperty(type_kind=pair.kind, type_name=pair.name, old_name=origin, new_name=name)
        yield from _type_change(pair, new, old.type)
        if old.description != new.description:
            yield UpdatePropertyMetadata(
                type_kind=pair.kind, type_name=pair.name, property_name=name, description=new.description
            )
        yield from _fixed_parts(pair, old, new)


def _addition(pair: _Pair, new: PropertyDef) -> Step:
    backfill = pair.backfill(new)
    # An interface has no rows: the nodes that implement it say whether theirs have a value.
    has_rows = pair.kind is not TypeKind.INTERFACE and not pair.backfills.is_past
    if not new.type.nullable and backfill is None and has_rows:
        return pair.unsupported(
            f"property `{new.name}` is required, but existing rows have no value for it: "
            f"declare it `{new.type}?`, or give them one with --backfill '{pair.name}.{new.name}=VALUE'",
            member=new.name,
            code=LintCode.ADD_REQUIRED_PROPERTY,
        )
    return AddProperty(
        type_kind=pair.kind, type_name=pair.name, property_name=new.name, property_type=str(new.type), backfill=backfill
    )


def _type_change(pair: _Pair, new: PropertyDef, old: PropertyType) -> Iterator[Step]:
    """The steps from one type to another: first its values, then whether null is one of them."""
    name, type_ = new.name, new.type
    if old == type_:
        return
    is_loosened = type_.nullable and not old.nullable
    base_step = _base_step(pair, name, old, type_)
    if is_loosened or (old.base != type_.base and base_step is None):
        yield pair.unsupported(
            f"the type of `{name}` cannot change from {old} to {type_}", member=name, code=LintCode.CHANGE_PROPERTY_TYPE
        )
        return
    if base_step is not None:
        yield base_step
    if old.nullable and not type_.nullable:
        yield TightenNullability(
            type_kind=pair.kind,
            type_name=pair.name,
            property_name=name,
            property_type=str(type_),
            backfill=pair.backfill(new),
        )


def _base_step(pair: _Pair, name: str, old: PropertyType, new: PropertyType) -> ExtendEnum | WidenProperty | None:
    match old.base, new.base:
        case EnumType(before), EnumType(after) if set(before) < set(after):
            added = tuple(sorted(set(after) - set(before)))
            return ExtendEnum(type_kind=pair.kind, type_name=pair.name, property_name=name, added_values=added)
        case ScalarType(narrow), wide if is_wider(wide, old.base):
            if narrow is Scalar.F32 and name in _key_members(pair.wanted):
                # The id holds the shortest spelling of the narrow value, which is another one when it is wider.
                return None
            return WidenProperty(
                type_kind=pair.kind,
                type_name=pair.name,
                property_name=name,
                old_type=str(old.base),
                new_type=str(new.base),
            )
    return None


def _key_members(declared: Declared) -> tuple[str, ...]:
    return () if isinstance(declared, InterfaceDef) or declared.key is None else declared.key.members


def _fixed_parts(pair: _Pair, old: PropertyDef, new: PropertyDef) -> Iterator[Step]:
    if old.injected != new.injected:
        yield pair.unsupported(f"`{new.name}` cannot move between its interface and the node", member=new.name)
    if old.annotations != new.annotations:
        yield pair.unsupported("only @description may change; other annotations are fixed", member=new.name)
    was, now = old.embedding, new.embedding
    source = pair.properties.get(was.source) if was else None
    same = (was is None and now is None) or (
        was is not None and now is not None and (source, was.model) == (now.source, now.model)
    )
    if not same:
        yield pair.unsupported(
            "@embed is fixed: stored vectors would no longer match the declared space", member=new.name
        )


@frozen
class _Rule:
    """A constraint in wanted names; `spelling` is the part that may not change although it means nothing."""

    kind: str
    members: tuple[str, ...]
    detail: str = ""
    spelling: str = ""

    def meaning(self) -> tuple[str, tuple[str, ...], str]:
        return self.kind, self.members, self.detail

    def __str__(self) -> str:
        members = sorted(self.members, key=lambda name: EDGE_ENDS.index(name) if name in EDGE_ENDS else len(EDGE_ENDS))
        inner = ", ".join((*members, *([self.detail] if self.detail else [])))
        return f"@{self.kind}({inner})"


def _constraint_changes(pair: _Pair) -> Iterator[Step]:
    translated = (_translate(rule, pair) for rule in _rules(pair.accepted))
    old = {rule for rule in translated if rule is not None}
    new = set(_rules(pair.wanted))
    old_meanings = {rule.meaning() for rule in old}
    respelled = {rule.meaning() for rule in new - old}
    for rule in sorted(new - old, key=_rule_order):
        if rule.meaning() in old_meanings:
            yield pair.unsupported(f"{rule} cannot move between property and body spelling")
        elif rule.kind == "key":
            yield pair.unsupported(
                f"{rule} cannot be added: the ids of existing rows would change; declare a new type with it, "
                "load its rows there, and drop this one"
            )
        else:
            yield AddConstraint(
                type_kind=pair.kind,
                type_name=pair.name,
                constraint=rule.kind,
                members=rule.members,
                detail=rule.detail or None,
                validate=rule.kind != "index" and pair.kind is not TypeKind.INTERFACE,
            )
    for rule in sorted(old - new, key=_rule_order):
        if rule.meaning() not in respelled:
            yield pair.unsupported(f"{rule} cannot be removed: that would relax the accepted schema")


def _translate(rule: _Rule, pair: _Pair) -> _Rule | None:
    """An accepted rule in wanted names, or None when it goes away together with all of its properties."""
    columns = EDGE_ENDS if pair.kind is TypeKind.EDGE else ()
    names = [name if name in columns else pair.properties.get(name) for name in rule.members]
    if all(name is None for name in names) and rule.kind != "key":
        return None
    members = tuple(sorted(name or gone for name, gone in zip(names, rule.members, strict=True)))
    return _Rule(rule.kind, members, rule.detail, rule.spelling)


def _rules(declared: Declared) -> Iterator[_Rule]:
    match declared:
        case InterfaceDef():
            for name, kinds in declared.constraints.items():
                for kind in kinds:
                    yield _Rule(kind, (name,))
        case NodeDef():
            yield from _member_rules("key", [declared.key] if declared.key else [])
            yield from _member_rules("unique", declared.uniques)
            yield from _member_rules("index", declared.indexes)
            for bounds in declared.ranges:
                low = "" if bounds.low is None else bounds.low
                high = "" if bounds.high is None else bounds.high
                yield _Rule("range", (bounds.property,), f"{low}..{high}")
            for check in declared.checks:
                yield _Rule("check", (check.property,), quote(check.pattern))
        case EdgeDef():
            yield from _member_rules("key", [declared.key] if declared.key else [])
            yield from _member_rules("unique", declared.uniques)
            yield from _member_rules("index", declared.indexes)


def _member_rules(kind: str, sets: Iterable[MemberSet]) -> Iterator[_Rule]:
    for item in sets:
        yield _Rule(kind, tuple(sorted(item.members)), spelling=str(item.provenance))


def _rule_order(rule: _Rule) -> tuple[str, tuple[str, ...], str, str]:
    return rule.kind, rule.members, rule.detail, rule.spelling


def _drops(accepted: Catalog, resolution: Resolution, mode: DropMode) -> Iterator[Step]:
    types = {(kind, origin): name for (kind, name), origin in resolution.type_origins.items()}
    for (kind, origin), declared in declared_types(accepted):
        name = types.get((kind, origin))
        if name is None:
            continue
        kept = set(resolution.property_origins[kind, name].values())
        for prop in sorted(set(declared.properties) - kept):
            yield DropProperty(type_kind=kind, type_name=name, property_name=prop, mode=mode)
    for (kind, origin), _ in declared_types(accepted):
        if (kind, origin) in types:
            continue
        if kind is TypeKind.INTERFACE:
            yield UnsupportedChange(entity=f"{kind}:{origin}", reason="an interface cannot be removed or renamed")
        else:
            yield DropType(type_kind=kind, type_name=origin, mode=mode)
