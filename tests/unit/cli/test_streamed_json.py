from __future__ import annotations

import json

import pytest

from omnigraph.cli import output
from omnigraph.cli.output import StreamedList, print_json


@pytest.mark.parametrize("count", [0, 1, 7])
@pytest.mark.parametrize("pieces", [1, 5, 10_000])
def test_a_streamed_list_is_printed_like_any_other(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, count: int, pieces: int
) -> None:
    monkeypatch.setattr(output, "_PIECES", pieces)
    numbers = list(range(count))

    def shown(number: int) -> dict[str, object]:
        return {"number": number, "text": "é\n", "none": None, "more": {"list": [number]}}

    print_json({"first": True, "items": StreamedList(numbers, shown), "last": {"a": []}})
    whole = {"first": True, "items": [shown(n) for n in numbers], "last": {"a": []}}
    assert capsys.readouterr().out == json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def test_items_are_printed_before_the_next_ones_are_made(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "_PIECES", 1)
    seen: list[str] = []

    def shown(number: int) -> int:
        seen.append(capsys.readouterr().out)
        return number

    print_json({"items": StreamedList([1, 2, 3], shown)})
    assert "1" in seen[1]
    assert "2" in seen[2]
