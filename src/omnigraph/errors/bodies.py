"""Error bodies back into the exceptions that they were made from: same class, same fields, same text."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from omnigraph import errors
from omnigraph.codec import decode_members
from omnigraph.errors import OmniError, RemoteError
from omnigraph.errors.base import declared_fields

Body = Mapping[str, object]

#: The nearest class of a failure of which only the status is known.
_BY_STATUS: dict[int, type[OmniError]] = {
    400: errors.BadRequestError,
    401: errors.UnauthorizedError,
    404: errors.NotFoundError,
    405: errors.MethodNotAllowedError,
    415: errors.UnsupportedMediaTypeError,
    429: errors.TooManyRequestsError,
}


def error_from_body(status: int, body: Body) -> OmniError:
    """The exception behind an error body; one that this release does not know is the nearest class by status."""
    for error in _candidates(body.get("kind")):
        if all(name in body for name in _told_by(error)):
            try:
                made = _rebuilt(error, str(body["error"]), _fields(error, body))
                # Values that cannot be shown fail here at the latest, not where the failure is printed.
                made.to_json()
            except (KeyError, TypeError, ValueError, AttributeError):
                # Another release gives the class other fields: it is still a failure of this status.
                break
            return made
    nearest = _BY_STATUS.get(status)
    if nearest is None or "error" not in body:
        return RemoteError(status, body)
    return _rebuilt(nearest, str(body["error"]), {})


def _candidates(kind: object) -> tuple[type[OmniError], ...]:
    return _by_kind().get(kind, ()) if isinstance(kind, str) else ()


@cache
def _by_kind() -> dict[str, tuple[type[OmniError], ...]]:
    """The classes of every kind, from the one with the most members to the general one."""
    found: dict[str, set[type[OmniError]]] = {}
    for name in errors.__all__:
        error = getattr(errors, name)
        if isinstance(error, type) and issubclass(error, OmniError) and error not in (OmniError, RemoteError):
            found.setdefault(error.kind, set()).add(error)
    # Between equals the base is the general one: a class that only says something else in its text has its kind.
    return {
        kind: tuple(sorted(some, key=lambda error: (-len(_told_by(error)), len(error.__mro__))))
        for kind, some in found.items()
    }


def _told_by(error: type[OmniError]) -> list[str]:
    """The members that every body of a class has."""
    names: list[str] = []
    for inside, members in declared_fields(error):
        if inside is not None:
            names.append(inside)
        else:
            names += [member.key for member in members if member.is_required]
    return names


def _fields(error: type[OmniError], body: Body) -> dict[str, object]:
    values: dict[str, object] = {}
    for inside, members in declared_fields(error):
        holder = body if inside is None else body[inside]
        if not isinstance(holder, Mapping):
            raise TypeError(f"{inside} is not an object")
        values |= decode_members(members, holder)
    return values


def _rebuilt(error: type[OmniError], message: str, fields: Mapping[str, object]) -> OmniError:
    # Not through its constructor, which renders the message: the sender has done that, maybe with more than it sends.
    made = error.__new__(error)
    OmniError.__init__(made, message)
    for name, value in fields.items():
        # Constants of the class stay where they are.
        if not (hasattr(error, name) and getattr(error, name) == value):
            setattr(made, name, value)
    return made
