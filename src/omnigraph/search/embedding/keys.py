"""A secret that does not print itself."""

from __future__ import annotations

from omnigraph.errors import BadRequestError

_MASK = "***"


class ApiKey:
    """The key of a provider. Only `reveal` gives it away; `repr`, `str` and formatting show a mask.

    Raises:
        BadRequestError: The value cannot travel in an HTTP header. It is refused here because the HTTP library quotes
            a header that it cannot send, key included, in its own error.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str, source: str = "the API key") -> None:
        value = value.strip()
        if not value or not all("!" <= character <= "~" for character in value):
            raise BadRequestError(
                f"{source} is not usable: a key is one word of printable ASCII characters"
            )
        self._value = value

    def reveal(self) -> str:
        """The key itself, for the one header that carries it."""
        return self._value

    def redact(self, text: str) -> str:
        """The text with every occurrence of the key masked."""
        return text.replace(self._value, _MASK)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ApiKey) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return f"ApiKey({_MASK})"
