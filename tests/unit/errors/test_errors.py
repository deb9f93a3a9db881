from __future__ import annotations

import json

import pytest

from omnigraph.errors import (
    MAX_DIAGNOSTICS,
    BadRequestError,
    CompilerError,
    ConfigurationError,
    Diagnostic,
    InputFileError,
    MixedMutationError,
    OmniError,
    ParameterError,
    QuerySelectionError,
    ResourceLimitError,
    Severity,
)
from support.subtests import each_case


def finding(number: int = 1, **members: object) -> Diagnostic:
    body: dict[str, object] = {
        "code": "S-01",
        "message": "wrong",
        "file": "f.pg",
        "line": number,
        "column": 2,
    }
    return Diagnostic(**(body | members))  # type: ignore[arg-type]  # members of several types


def test_a_finding_is_a_json_object() -> None:
    assert finding().to_json() == {
        "code": "S-01",
        "severity": "error",
        "message": "wrong",
        "file": "f.pg",
        "line": 1,
        "column": 2,
    }


def test_a_hint_is_in_the_json_only_when_there_is_one() -> None:
    assert finding(hint="try").to_json()["hint"] == "try"
    assert "hint" not in finding().to_json()


def test_a_finding_without_excerpt_is_rendered_in_one_line() -> None:
    assert finding(severity=Severity.INFO).render() == "f.pg:1:2: info S-01: wrong"


def test_a_compiler_error_needs_a_finding() -> None:
    with pytest.raises(ValueError, match="at least one"):
        CompilerError(())


def test_a_compiler_error_shows_all_its_findings() -> None:
    error = CompilerError((finding(1), finding(2, code="S-03")))

    assert error.codes == ("S-01", "S-03")
    assert str(error) == "f.pg:1:2: error S-01: wrong\nf.pg:2:2: error S-03: wrong"


def test_an_error_carries_the_first_findings_and_their_number() -> None:
    error = CompilerError(tuple(finding(number) for number in range(1, MAX_DIAGNOSTICS + 4)))

    assert str(error).count("error S-01") == MAX_DIAGNOSTICS
    assert str(error).endswith("… and 3 more errors")
    assert len(error.diagnostics) == MAX_DIAGNOSTICS
    assert error.to_json()["diagnostic_total"] == error.total == MAX_DIAGNOSTICS + 3


def test_one_hidden_finding_is_one_error() -> None:
    error = CompilerError(tuple(finding(number) for number in range(1, MAX_DIAGNOSTICS + 2)))

    assert str(error).endswith("… and 1 more error")


ERRORS = [
    pytest.param(
        CompilerError((finding(),)),
        "compiler",
        "bad_request",
        400,
        {"diagnostics": [finding().to_json()]},
        id="CompilerError",
    ),
    pytest.param(
        BadRequestError("no"), "bad_request", "bad_request", 400, {}, id="BadRequestError"
    ),
    pytest.param(
        ParameterError("q", {"a": "a is wrong", "b": "b is wrong"}),
        "bad_request",
        "bad_request",
        400,
        {"parameters": {"a": "a is wrong", "b": "b is wrong"}, "query_name": "q"},
        id="ParameterError",
    ),
    pytest.param(
        ConfigurationError((finding(),)),
        "bad_request",
        "bad_request",
        400,
        {"diagnostics": [finding().to_json()]},
        id="ConfigurationError",
    ),
    pytest.param(
        QuerySelectionError("which one?", ("a", "b")),
        "bad_request",
        "bad_request",
        400,
        {"available": ["a", "b"]},
        id="QuerySelectionError",
    ),
    pytest.param(
        MixedMutationError("q"),
        "bad_request",
        "bad_request",
        400,
        {"mixed_mutation": {"query_name": "q"}},
        id="MixedMutationError",
    ),
    pytest.param(
        InputFileError("x.pg", "gone"),
        "io",
        "internal",
        500,
        {"path": "x.pg", "reason": "gone"},
        id="InputFileError",
    ),
    pytest.param(OmniError("broken"), "internal", "internal", 500, {}, id="OmniError"),
]


@each_case(("error", "kind", "code", "status", "details"), ERRORS)
def test_an_error_body_has_message_kind_code_and_details(
    error: OmniError, kind: str, code: str, status: int, details: dict[str, object]
) -> None:
    body = error.to_json()

    assert body == {"error": str(error), "kind": kind, "code": code} | details
    assert json.loads(json.dumps(body)) == body
    assert (error.http_status, error.exit_code) == (status, 1)


def test_a_parameter_error_lists_every_problem() -> None:
    error = ParameterError("q", {"a": "a is wrong", "b": "b is wrong"})

    assert str(error) == "parameters of query `q` do not fit: a is wrong; b is wrong"


def test_a_mixed_mutation_is_told_to_be_split() -> None:
    message = str(MixedMutationError("q"))

    assert "`q`" in message
    assert "split" in message


def test_an_unreadable_file_is_named_with_its_reason() -> None:
    assert str(InputFileError("x.pg", "gone")) == "cannot read x.pg: gone"


MEBIBYTE = 1024 * 1024


@each_case(
    ("resource", "limit", "actual", "text"),
    [
        ("http_request_bytes", 64 * MEBIBYTE, 96 * MEBIBYTE, "body of the request: 96 MiB, above the limit of 64 MiB"),
        ("http_request_bytes", 1024, 1025, "body of the request: 1,025 bytes, above the limit of 1,024 bytes"),
        ("query_rows", 10_000_000, 10_000_001, "rows of the answer: 10,000,001, above the limit of 10,000,000"),
        ("later_bytes", 1024, 2048, "later bytes: 2 KiB, above the limit of 1 KiB"),
        ("later_things", 1024, 2048, "later things: 2,048, above the limit of 1,024"),
    ],
)  # fmt: skip
def test_a_limit_is_told_with_sizes_and_words_for_people(
    resource: str, limit: int, actual: int, text: str
) -> None:
    error = ResourceLimitError(resource, limit, actual, "do less")

    assert error.message == f"{text}; do less"
    assert error.to_json()["resource_limit"]["resource"] == resource
