"""How many examples a property test tries: few in every run, many with `pytest --hypothesis-profile thorough`."""

from __future__ import annotations

from hypothesis import settings

THOROUGH = "thorough"


def examples(few: int, *, thorough: int) -> settings:
    """Decorate a property test whose examples are expensive."""
    return settings(max_examples=thorough if settings.get_current_profile_name() == THOROUGH else few)
