"""What a request may name as a graph version: whole numbers, and nothing that would only be converted to one."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from omnigraph.api.models import TargetParams
from support.subtests import each_case


@each_case("version", [True, False, 1.0, 1.5, "1.0", "true", "", "-1", "+1", [1]])
def test_what_is_not_a_whole_number_is_refused(version: object) -> None:
    with pytest.raises(ValidationError):
        TargetParams.model_validate({"version": version})


@pytest.mark.parametrize("version", [3, "3"])
def test_a_whole_number_is_taken_from_bodies_and_query_strings(version: object) -> None:
    assert TargetParams.model_validate({"version": version}).version == 3


@each_case("moment", [123, 1.5, True, ["2026-05-01"]])
def test_a_moment_is_a_text(moment: object) -> None:
    with pytest.raises(ValidationError):
        TargetParams.model_validate({"as_of": moment})
