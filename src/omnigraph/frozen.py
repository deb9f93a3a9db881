"""Immutable classes with fields: `frozen`, a dataclass whose methods are made when they are first needed.

A command defines hundreds of them and uses few. `dataclasses` compiles six methods of every one, which takes longer
than a query; here a class costs little more than one without fields. It lies below every room.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from enum import Enum
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, overload

from typing_extensions import dataclass_transform

if TYPE_CHECKING:
    from inspect import Signature

_T = TypeVar("_T")


@overload
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[_T], /) -> type[_T]: ...


@overload
def frozen(*, kw_only: bool = False, slots: bool = True, repr: bool = True) -> Callable[[type[_T]], type[_T]]: ...


def frozen(
    cls: type[Any] | None = None, /, *, kw_only: bool = False, slots: bool = True, repr: bool = True
) -> type[Any] | Callable[[type[Any]], type[Any]]:
    """Make a class what `dataclass(frozen=True, slots=True)` makes of it; methods of its own stay.

    The functions of `dataclasses` take it, and it may be pickled. Every field is a parameter: none has `init=False`.

    >>> @frozen
    ... class Point:
    ...     x: int
    ...     y: int = 0
    >>> Point(1), Point(1) == Point(1, 0)
    (Point(x=1, y=0), True)
    """

    def decorate(plain: type[Any]) -> type[Any]:
        made = dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)(plain)
        methods: dict[str, object] = {
            "__init__": _first_init(made),
            "__eq__": _equality(made),
            "__hash__": _hash(made),
            "__setattr__": _refuse_assignment,
            "__delattr__": _refuse_deletion,
            "__signature__": _SIGNATURE,
        }
        if repr:
            methods["__repr__"] = _text
        if slots:
            methods |= {"__getstate__": _state, "__setstate__": _restore}
        own = vars(plain)
        for name, method in methods.items():
            # A class with an equality of its own has None for a hash.
            if own.get(name) is None:
                setattr(made, name, method)
        return made

    return decorate if cls is None else decorate(cls)


# ---- Making instances


class _Factory(Enum):
    """Stands for a value that is made for every instance."""

    FACTORY = "<factory>"

    def __repr__(self) -> str:
        return self.value


def _first_init(cls: type[Any]) -> Callable[..., None]:
    """An `__init__` that is replaced when it is called."""

    def __init__(self: Any, *values: Any, **named: Any) -> None:
        init = _init(cls)
        cls.__init__ = init
        init(self, *values, **named)

    return __init__


def _init(cls: type[Any]) -> Callable[..., None]:
    """The `__init__` of a class: Python keeps the parameters of a function in its text alone."""
    known: dict[str, Any] = {"_set": object.__setattr__, "_factory": _Factory.FACTORY}
    plain = ["self"]
    named: list[str] = []
    lines: list[str] = []
    for item in fields(cls):
        name = value = item.name
        parameter = name
        if item.default_factory is not MISSING:
            known[f"_make_{name}"] = item.default_factory
            parameter = f"{name}=_factory"
            value = f"_make_{name}() if {name} is _factory else {name}"
        elif item.default is not MISSING:
            known[f"_default_{name}"] = item.default
            parameter = f"{name}=_default_{name}"
        (named if item.kw_only else plain).append(parameter)
        lines.append(f" _set(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    parameters = [*plain, "*", *named] if named else plain
    exec("\n".join((f"def __init__({', '.join(parameters)}):", *lines, " return None")), known)
    init: Callable[..., None] = known["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


class _Signature:
    """How a class is called, for those who ask before it was."""

    def __get__(self, instance: object, cls: type[Any]) -> Signature:
        from inspect import Parameter, Signature

        parameters = [
            Parameter(
                item.name,
                Parameter.KEYWORD_ONLY if item.kw_only else Parameter.POSITIONAL_OR_KEYWORD,
                default=_default(item, Parameter.empty),
                annotation=item.type,
            )
            for item in sorted(fields(cls), key=attrgetter("kw_only"))
        ]
        return Signature(parameters)


_SIGNATURE = _Signature()


def _default(item: Field[Any], nothing: object) -> object:
    if item.default_factory is not MISSING:
        return _Factory.FACTORY
    return nothing if item.default is MISSING else item.default


# ---- Comparing, showing and keeping instances


def _values(names: list[str]) -> Callable[[Any], tuple[object, ...]]:
    """The values of some fields of an instance."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple([getattr(self, name) for name in names])


def _equality(cls: type[Any]) -> Callable[[Any, object], bool]:
    values = _values([item.name for item in fields(cls) if item.compare])

    def __eq__(self: Any, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return values(self) == values(other)

    return __eq__


def _hash(cls: type[Any]) -> Callable[[Any], int]:
    values = _values([item.name for item in fields(cls) if (item.compare if item.hash is None else item.hash)])
    return lambda self: hash(values(self))


@recursive_repr()
def _text(self: Any) -> str:
    shown = ", ".join(f"{item.name}={getattr(self, item.name)!r}" for item in fields(self) if item.repr)
    return f"{type(self).__qualname__}({shown})"


def _refuse_assignment(_self: Any, name: str, _value: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deletion(_self: Any, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[object]:
    return [getattr(self, item.name) for item in fields(self)]


def _restore(self: Any, state: list[object]) -> None:
    for item, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, item.name, value)
