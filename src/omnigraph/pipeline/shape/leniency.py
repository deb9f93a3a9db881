"""What a load does with records that it could refuse: equal ids, edges without an end, and bad records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import TypeVar

from omnigraph.core.ids import TableKey
from omnigraph.errors import BadRequestError
from omnigraph.frozen import frozen
from omnigraph.lang.schema.rules import DistinctIds, End, Rule


class Duplicates(StrEnum):
    """The rule for records of one input with equal ids."""

    #: The first one counts.
    FIRST = "first"
    #: The last one counts.
    LAST = "last"
    #: All of them are bad records.
    ERROR = "error"


class Dangling(StrEnum):
    """The rule for edges whose ends do not exist."""

    #: They are left out and counted.
    DROP = "drop"
    #: They are bad records.
    ERROR = "error"


@frozen(kw_only=True)
class Leniency:
    """The rules of one load, by type."""

    duplicates: Mapping[TableKey, Duplicates] = field(default_factory=dict)
    dangling: Mapping[TableKey, Dangling] = field(default_factory=dict)
    default_duplicates: Duplicates = Duplicates.ERROR
    default_dangling: Dangling = Dangling.ERROR
    #: Whether bad records go to a quarantine, and the others are loaded.
    quarantines: bool = False

    @property
    def drops_any(self) -> bool:
        """Whether edges of any type are left out when they have no end."""
        return Dangling.DROP in (self.default_dangling, *self.dangling.values())

    def duplicates_of(self, key: TableKey) -> Duplicates:
        """The rule for equal ids of a type."""
        return self.duplicates.get(key, self.default_duplicates)

    def drops(self, key: TableKey) -> bool:
        """Whether edges of a type without an end are left out."""
        return self.dangling.get(key, self.default_dangling) is Dangling.DROP

    def forgives(self, key: TableKey, rule: Rule) -> bool:
        """Whether rows that violate a rule may be left out."""
        if isinstance(rule, DistinctIds):
            return self.quarantines or self.duplicates_of(key) is not Duplicates.ERROR
        return self.quarantines or (isinstance(rule, End) and self.drops(key))


@frozen
class Said:
    """The rules that a mapping gives for one source of a type."""

    type_key: TableKey
    duplicates: Duplicates | None
    dangling: Dangling | None


def leniency_of(
    said: Sequence[Said],
    unordered: Mapping[TableKey, str],
    *,
    duplicates: object,
    dangling: object,
    default: Duplicates,
    quarantines: bool = False,
) -> Leniency:
    """The rules of a load: those of the call go before those of the mapping.

    `unordered` names the sources of types whose rows have no order; `default` is the rule for equal ids without any.

    Raises:
        BadRequestError: the first or last record should count where records have no order, two sources of a type have
            different rules, or there is no such rule.
    """
    chosen, drops = choice(Duplicates, duplicates, "on_duplicate"), choice(Dangling, dangling, "dangling")
    found = Leniency(
        duplicates=_by_type((one.type_key, one.duplicates) for one in said) if chosen is None else {},
        dangling=_by_type((one.type_key, one.dangling) for one in said) if drops is None else {},
        default_duplicates=chosen or default,
        default_dangling=drops or Dangling.ERROR,
        quarantines=quarantines,
    )
    for key, source in unordered.items():
        rule = found.duplicates_of(key)
        if rule is not Duplicates.ERROR:
            raise BadRequestError(
                f"{source}: its rows have no order, so none of equal ids is the {rule} one: keep one row of each id "
                "before the load, for example with dropDuplicates, and leave the rule out"
            )
    return found


_Rule = TypeVar("_Rule", bound=StrEnum)


def _by_type(said: Iterable[tuple[TableKey, _Rule | None]]) -> dict[TableKey, _Rule]:
    found: dict[TableKey, _Rule] = {}
    for key, rule in said:
        if rule is not None and found.setdefault(key, rule) != rule:
            raise BadRequestError(f"{key.name}: its entries say `{found[key]}` and `{rule}`: give one rule per type")
    return found


def choice(kind: type[_Rule], value: object, name: str) -> _Rule | None:
    """One of the rules by its name; None when none is given.

    Raises:
        BadRequestError: there is none of that name.
    """
    if value is None:
        return None
    known = [str(one) for one in kind]
    if value not in known:
        raise BadRequestError(f"{name} is one of {', '.join(known)}, not {value!r}")
    return kind(str(value))
