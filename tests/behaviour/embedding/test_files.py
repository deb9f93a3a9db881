"""The file pipeline: records in JSON lines get their vectors, everything else passes through."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from omnigraph.embedding import file_job
from omnigraph.embedding.client import EmbeddingSettings, ProviderName, create_embedder
from omnigraph.embedding.file_job import (
    EmbedFiles,
    EmbedMode,
    EmbedSpec,
    TypeSpec,
    choose_mode,
    embed_files,
    parse_selector,
    read_seed_manifest,
    read_spec,
    text_of,
)
from omnigraph.embedding.providers import mock_vector
from omnigraph.errors import BadRequestError, EmbeddingError, InputFileError, StorageFailure

SPEC = EmbedSpec(
    dimension=3,
    types={"Note": TypeSpec(target="vec", fields=["title", "body"]), "Tag": TypeSpec(target="vec", fields=["name"])},
)
NOTE_A = '{"type":"Note","data":{"title":"A","body":"x"}}'
NOTE_B = '{"type":"Note","data":{"title":"B","vec":[1.0,0.0,0.0]}}'
TAG = '{"type":"Tag","data":{"name":"t","vec":[]}}'
EDGE = '{"edge":"Has", "from":"A",  "to":"t"}'
OTHER = '{"type":"Person","data":{"title":"P"}}'


class Recorder:
    """An embedder that remembers how it was asked."""

    provider = "recorder"
    model = "recorded"

    def __init__(self, fails_at: int | None = None) -> None:
        self.calls: list[list[str]] = []
        self._fails_at = fails_at

    def embed(self, texts: Sequence[str], *, dimension: int, purpose: object) -> list[tuple[float, ...]]:
        if len(self.calls) == self._fails_at:
            raise EmbeddingError("the provider is gone", StorageFailure.TRANSIENT)
        self.calls.append(list(texts))
        return [mock_vector(text, dimension) for text in texts]

    def close(self) -> None:
        pass


def run(folder: Path, lines: Sequence[str], embedder: Any = None, **rest: Any) -> Any:
    source, target = folder / "in.jsonl", folder / "out.jsonl"
    source.write_text("\n".join(lines) + "\n", encoding="utf-8")
    call = EmbedFiles(input=source, output=target, spec=SPEC, **rest)
    is_clean = call.mode is EmbedMode.CLEAN
    return embed_files(call, embedder or (None if is_clean else Recorder()))


def output(folder: Path) -> list[str]:
    return (folder / "out.jsonl").read_text(encoding="utf-8").splitlines()


def vector_in(line: str) -> list[float] | None:
    found: list[float] | None = json.loads(line)["data"].get("vec")
    return found


def test_missing_vectors_are_filled_and_all_other_lines_pass_unchanged(tmp_path: Path) -> None:
    lines = [NOTE_A, EDGE, NOTE_B, "", TAG, OTHER]
    result = run(tmp_path, lines)
    written = output(tmp_path)
    assert [written[place] for place in (1, 2, 3, 5)] == [EDGE, NOTE_B, "", OTHER]
    assert vector_in(written[0]) == pytest.approx(mock_vector("type: Note\ntitle: A\nbody: x", 3))
    assert vector_in(written[4]) == pytest.approx(mock_vector("type: Tag\nname: t", 3))
    assert result.to_json() == {
        "input": str(tmp_path / "in.jsonl"),
        "output": str(tmp_path / "out.jsonl"),
        "records": 5,
        "selected_records": 3,
        "embedded_records": 2,
        "cleaned_records": 0,
        "mode": "fill_missing",
        "dimension": 3,
        "model": "recorded",
    }


@pytest.mark.parametrize(
    ("flags", "mode", "embedded", "selected"),
    [
        ({}, "fill_missing", ["A", "t"], 3),
        ({"types": ["Tag"]}, "fill_missing", ["t"], 1),
        ({"reembed_all": True}, "reembed_all", ["A", "B", "t"], 3),
        ({"reembed_all": True, "types": ["Note"]}, "reembed_all", ["A", "B"], 2),
        ({"select": ["title=B"]}, "reembed_selected", ["B"], 1),
        ({"select": ["Tag:name=t", "Note:title=A"]}, "reembed_selected", ["A", "t"], 2),
        ({"select": ["Tag:title=A"]}, "reembed_selected", [], 0),
        ({"select": ["title=B"], "reembed_all": True}, "reembed_all", ["B"], 1),
    ],
)
def test_modes_and_filters_choose_records(
    tmp_path: Path, flags: dict[str, Any], mode: str, embedded: list[str], selected: int
) -> None:
    selectors = tuple(map(parse_selector, flags.get("select", [])))
    recorder = Recorder()
    result = run(
        tmp_path,
        [NOTE_A, NOTE_B, TAG],
        recorder,
        mode=choose_mode(clean=False, reembed_all=flags.get("reembed_all", False), selectors=selectors),
        types=frozenset(flags.get("types", [])),
        selectors=selectors,
    )
    texts = [text.splitlines()[1].partition(": ")[2] for call in recorder.calls for text in call]
    assert (result.mode, texts) == (mode, embedded)
    assert (result.selected_records, result.embedded_records) == (selected, len(embedded))


def test_cleaning_removes_the_target_and_asks_nobody(tmp_path: Path) -> None:
    result = run(tmp_path, [NOTE_A, NOTE_B, TAG], mode=EmbedMode.CLEAN)
    assert [vector_in(line) for line in output(tmp_path)] == [None, None, None]
    assert output(tmp_path)[0] == NOTE_A
    assert (result.cleaned_records, result.embedded_records, result.model) == (2, 0, "")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"title": "  A  ", "body": None}, "type: Note\ntitle: A"),
        ({"title": "", "body": " "}, "type: Note"),
        ({"title": ["a", None, " b "], "body": [1, True]}, "type: Note\ntitle: a, b\nbody: 1, true"),
        ({"body": 2.5}, "type: Note\nbody: 2.5"),
    ],
)
def test_the_text_has_one_line_per_field_with_a_value(data: dict[str, Any], text: str) -> None:
    assert text_of("Note", data, ["title", "body"]) == text


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"type":"Note"}', "`data` is not an object"),
        ('{"type":"Note","data":[1]}', "`data` is not an object"),
        ('{"type":3,"data":{}}', "`type` is not a string"),
        ("{", "it is not JSON"),
        ("[1]", "it is not a JSON object"),
        ('{"type":"Note","data":{"title":NaN}}', "NaN is not a number"),
        ('{"type":"Note","data":{"x":1e999}}', "1e999 is not a number"),
        ('{"type":"Note","data":{"x":1,"x":2}}', "given twice"),
    ],
)
def test_a_wrong_line_is_named_and_nothing_is_written(tmp_path: Path, line: str, complaint: str) -> None:
    with pytest.raises(BadRequestError, match=rf"line 2: .*{complaint}"):
        run(tmp_path, [NOTE_A, line])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl"]


@pytest.mark.parametrize(
    ("limits", "calls"),
    [
        ({"_BATCH_TEXTS": 2}, [2, 2, 1]),
        ({"_BATCH_TEXTS": 2, "_WAITING_LINES": 5}, [2, 1, 2]),
        ({"_WAITING_BYTES": 1}, [1, 1, 1, 1, 1]),
    ],
)
def test_texts_go_to_the_provider_in_batches_and_lines_keep_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: dict[str, int], calls: list[int]
) -> None:
    for name, value in limits.items():
        monkeypatch.setattr(file_job, name, value)
    notes = [json.dumps({"type": "Note", "data": {"title": str(n)}}) for n in range(5)]
    recorder = Recorder()
    run(tmp_path, [*notes[:3], *[EDGE] * 7, *notes[3:]], recorder)
    assert [len(call) for call in recorder.calls] == calls
    names = [json.loads(line).get("data", {}).get("title", "-") for line in output(tmp_path)]
    assert names == ["0", "1", "2", *"-" * 7, "3", "4"]


def test_a_failing_provider_leaves_the_old_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_job, "_BATCH_TEXTS", 1)
    (tmp_path / "out.jsonl").write_text("old\n")
    with pytest.raises(EmbeddingError, match="gone"):
        run(tmp_path, [NOTE_A, TAG], Recorder(fails_at=1))
    assert output(tmp_path) == ["old"]
    assert not (tmp_path / "out.jsonl.tmp").exists()


def test_a_file_may_be_embedded_in_place_and_a_second_run_finds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + NOTE_A.encode())
    call = EmbedFiles(input=path, output=path, spec=SPEC)
    assert embed_files(call, Recorder()).embedded_records == 1
    first = path.read_bytes()
    assert embed_files(call, Recorder()).embedded_records == 0
    assert path.read_bytes() == first


def test_written_components_are_the_exact_floats_of_the_vector(tmp_path: Path) -> None:
    import numpy as np

    run(tmp_path, [NOTE_A])
    written = vector_in(output(tmp_path)[0])
    wanted = mock_vector("type: Note\ntitle: A\nbody: x", 3)
    assert np.array(written, np.float32).tolist() == list(wanted)


def test_any_provider_of_the_client_embeds_files(tmp_path: Path) -> None:
    with create_embedder(EmbeddingSettings(provider=ProviderName.MOCK)) as embedder:
        assert run(tmp_path, [NOTE_A], embedder).model == "mock"


def test_a_manifest_names_files_relative_to_itself(tmp_path: Path) -> None:
    body = "embeddings: {dimension: 2, types: {Note: {target: v, fields: [title]}}}\n"
    manifest = tmp_path / "seed.yaml"
    manifest.write_text(f"name: more\nsources: {{raw_seed: raw/a.jsonl}}\n{body}")
    found = read_seed_manifest(manifest)
    assert found.input == tmp_path / "raw/a.jsonl"
    assert found.output == tmp_path / "build/seed.embedded.jsonl"
    assert found.spec.types["Note"].fields == ["title"]
    manifest.write_text(f"seed: {{data: b.jsonl}}\nartifacts: {{embedded_seed: c.jsonl}}\n{body}")
    found = read_seed_manifest(manifest)
    assert (found.input, found.output) == (tmp_path / "b.jsonl", tmp_path / "c.jsonl")
    manifest.write_text(body)
    with pytest.raises(BadRequestError, match=r"sources\.raw_seed"):
        read_seed_manifest(manifest)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"dimension": 0, "types": {"A": {"target": "v", "fields": ["x"]}}}', "1:15: .*`dimension` is below 1"),
        ('{"dimension": 2, "types": {}}', "1:27: .*`types` is empty"),
        ('{"dimension": 2, "types": {"A": {"target": "v"}}}', r"1:33: .*`types\.A\.fields` is missing"),
        ('{"dimension": 2, "model": "m", "types": {"A": {"target": "v", "fields": ["x"]}}}', "1:18: .*`model` is not"),
        ("[1]", "1:1: .*the file is a mapping, not a list"),
    ],
)  # fmt: skip
def test_a_wrong_spec_says_where(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "spec.json"
    path.write_text(text)
    with pytest.raises(BadRequestError, match=complaint):
        read_spec(path)


def test_types_and_selectors_have_to_be_in_the_spec(tmp_path: Path) -> None:
    with pytest.raises(BadRequestError, match="no type Person; it has Note, Tag"):
        run(tmp_path, [], types=frozenset({"Person"}))
    for wrong in ("title", "=x", ":f=1"):
        with pytest.raises(BadRequestError, match="is not a selector"):
            parse_selector(wrong)
    with pytest.raises(BadRequestError, match="one of clean and reembed_all"):
        choose_mode(clean=True, reembed_all=True)


def test_a_missing_input_is_named(tmp_path: Path) -> None:
    call = EmbedFiles(input=tmp_path / "no.jsonl", output=tmp_path / "out", spec=SPEC)
    with pytest.raises(InputFileError, match=r"no\.jsonl"):
        embed_files(call, Recorder())
