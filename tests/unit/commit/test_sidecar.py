from __future__ import annotations

import json

import pytest

from omnigraph.commit.sidecar import (
    WriterKind,
    delete_sidecar,
    list_sidecars,
    read_sidecar,
    write_sidecar,
)
from omnigraph.errors import RecoveryRequiredError
from omnigraph.storage.location import parse_location
from omnigraph.storage.objects import ObstoreObjects
from support.sidecars import OPERATION, entry, sidecar

NAME = f"__recovery/{OPERATION}.json"


@pytest.fixture(params=[False, True], ids=["process", "durable"])
def objects(tmp_path, request):
    return ObstoreObjects(parse_location(tmp_path), durable=request.param)


@pytest.mark.parametrize("kind", WriterKind)
def test_a_sidecar_comes_back_from_its_file(objects, kind):
    written = sidecar(kind)
    write_sidecar(objects, written)
    assert list_sidecars(objects) == [NAME] == [written.name]
    assert read_sidecar(objects, NAME) == written


def test_a_sidecar_without_actor_parent_and_tables_comes_back_too(objects):
    bare = sidecar(actor=None, tables=())
    bare = bare.model_copy(
        update={
            "commit": bare.commit.model_copy(update={"parent_id": None, "merged_parent_id": None})
        }
    )
    write_sidecar(objects, bare)
    assert read_sidecar(objects, NAME) == bare


def test_a_sidecar_holds_every_field_of_the_protocol(objects, tmp_path):
    write_sidecar(objects, sidecar())
    body = json.loads((tmp_path / NAME).read_text())
    assert body["format_version"] == 1
    assert (body["operation_id"], body["writer_kind"]) == (OPERATION, "mutation")
    assert set(body["tables"][0]) >= {
        "table_key",
        "table_path",
        "table_branch",
        "expected_version",
        "post_commit_pin",
        "transaction_uuid",
        "confirmed_version",
    }
    assert set(body["commit"]) == {
        "commit_id",
        "parent_id",
        "merged_parent_id",
        "merge_strategy",
        "created_at",
    }


def test_a_deleted_sidecar_is_gone_and_deleting_it_again_is_fine(objects):
    write_sidecar(objects, sidecar())
    delete_sidecar(objects, NAME)
    assert list_sidecars(objects) == []
    assert read_sidecar(objects, NAME) is None
    delete_sidecar(objects, NAME)


def test_only_whole_sidecars_are_listed_oldest_first(objects, tmp_path):
    newer = sidecar(operation_id="01M7H0J2HPZ4Q2E7CGXD59Z6W9")
    write_sidecar(objects, newer)
    write_sidecar(objects, sidecar())
    for name in (f"{OPERATION}.json#1", "notes.json", f"{OPERATION}.txt", f"{OPERATION}.json.tmp"):
        (tmp_path / "__recovery" / name).write_text("{}")
    assert list_sidecars(objects) == [NAME, newer.name]


def changed(**values: object) -> str:
    return json.dumps(sidecar().model_dump(mode="json") | values)


WHOLE = sidecar().model_dump_json()
DAMAGED = {
    "empty": "",
    "cut_short": WHOLE[: len(WHOLE) // 2],
    "a_list": "[]",
    "null": "null",
    "another_format": changed(format_version=2),
    "an_unknown_field": changed(extra=1),
    "an_unknown_writer": changed(writer_kind="gremlin"),
    "no_commit": changed(commit=None),
    "a_version_that_is_no_number": changed(
        tables=[entry().model_dump() | {"expected_version": "four"}]
    ),
    "a_missing_uuid": changed(
        tables=[{k: v for k, v in entry().model_dump().items() if k != "transaction_uuid"}]
    ),
    "another_operation": changed(operation_id="01M7H0J2HPZ4Q2E7CGXD59Z6W9"),
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_sidecar_is_refused_under_the_id_of_its_file_and_kept(objects, text):
    objects.write(NAME, text.encode())
    with pytest.raises(RecoveryRequiredError, match=NAME) as caught:
        read_sidecar(objects, NAME)
    assert caught.value.operation_id == OPERATION
    assert objects.read(NAME).data == text.encode()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("empty", "it is not valid JSON"),
        ("a_list", "it is an object, not a list"),
        ("another_format", "`format_version` is not 1"),
        ("an_unknown_field", "`extra` is not a known field"),
        ("no_commit", "`commit` is an object, not null"),
        ("a_missing_uuid", "`tables[0].transaction_uuid` is missing"),
        ("a_version_that_is_no_number", "`tables[0].expected_version` is a whole number, not a"),
    ],
)
def test_a_damaged_sidecar_is_explained_by_field(objects, name, words):
    objects.write(NAME, DAMAGED[name].encode())
    with pytest.raises(RecoveryRequiredError) as caught:
        read_sidecar(objects, NAME)
    assert f"problems: 1; {words}" in str(caught.value)
