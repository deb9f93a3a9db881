from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from omnigraph.errors import OutsideRootError
from omnigraph.storage.answers import (
    abandoned_answers,
    attempt_name,
    new_answer_folder,
    read_answer,
    remove_answers,
    write_answer,
)
from omnigraph.storage.location import parse_location
from support.tables import answer_folder

ROWS = pa.RecordBatch.from_pydict({"id": ["a", "b", "c"], "row": [1, None, 3]})


def test_an_answer_is_read_as_it_was_written(tmp_path):
    with answer_folder(parse_location(tmp_path)) as folder:
        name = attempt_name("delta", 3)
        answer = write_answer(folder, name, ROWS.schema, [ROWS, ROWS.slice(1)])
        assert (answer.name, answer.rows) == (name, 5)
        assert answer.size_bytes == (tmp_path / folder.file(name)).stat().st_size
        other_process = pickle.loads(pickle.dumps(folder))
        batches = list(read_answer(other_process, name))
    assert [batch.num_rows for batch in batches] == [3, 2]
    assert batches[0].equals(ROWS)
    assert list(tmp_path.iterdir()) == []


def test_an_answer_without_rows_has_its_columns(tmp_path):
    with answer_folder(parse_location(tmp_path)) as folder:
        answer = write_answer(folder, "none", ROWS.schema, [])
        assert answer.rows == 0
        assert list(read_answer(folder, "none")) == []


def test_a_failed_answer_leaves_no_file(tmp_path):
    def batches():
        yield ROWS
        raise ArithmeticError("the task fails")

    folder = new_answer_folder(parse_location(tmp_path))
    with pytest.raises(ArithmeticError):
        write_answer(folder, "part", ROWS.schema, batches())
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_what_a_dead_operation_left_is_found_and_removed(tmp_path):
    root = parse_location(tmp_path)
    folder = new_answer_folder(root)
    write_answer(folder, "part-1", ROWS.schema, [ROWS])
    (tmp_path / "__staging" / "notes").mkdir()
    (tmp_path / "__staging" / "notes" / "mine.txt").write_text("not ours")
    found = abandoned_answers(root, None)
    assert [file.name for file in found] == [folder.file("part-1")]
    assert abandoned_answers(root, found[0].modified_s) == []
    remove_answers(folder)
    assert abandoned_answers(root, None) == []
    assert (tmp_path / "__staging" / "notes" / "mine.txt").exists()


def test_a_linked_folder_is_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "part.arrow").write_bytes(b"precious")
    root = tmp_path / "graph"
    folder = new_answer_folder(parse_location(root))
    (root / "__staging").mkdir(parents=True)
    (root / folder.name).symlink_to(victim)
    assert abandoned_answers(parse_location(root), None) == []
    with pytest.raises(OutsideRootError):
        write_answer(folder, "part", ROWS.schema, [ROWS])
    with pytest.raises(OutsideRootError):
        remove_answers(folder)
    assert (victim / "part.arrow").read_bytes() == b"precious"
