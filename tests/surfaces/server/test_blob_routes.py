from __future__ import annotations

import base64

import pytest

from omnigraph import Graph
from support.servers import client_of, make_graph, open_server
from support.subtests import each_case

PATH = "/graphs/default/blob"
GRACE = {"entity": "node", "type": "Person", "id": "grace", "property": "photo"}
LARGE = bytes(range(256)) * 20_000


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """A client of a graph with a small and a large blob, which nobody changes."""
    uri = make_graph(tmp_path_factory.mktemp("photos"))
    with open_server(uri) as service, client_of(service) as client:
        text = base64.b64encode(LARGE).decode()
        line = f'{{"type":"Person","data":{{"name":"large","photo":"base64:{text}"}}}}'
        loaded = client.post("/graphs/default/load", json={"data": line})
        assert loaded.status_code == 200, loaded.text
        yield client


def get(client, **headers):
    return client.get(PATH, params=GRACE, headers={k.replace("_", "-"): v for k, v in headers.items()})


def test_a_whole_value_with_its_tag(photos):
    answer = get(photos)
    assert (answer.status_code, answer.content) == (200, b"Hello")
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["accept-ranges"] == "bytes"
    assert answer.headers["etag"].startswith('"')
    assert answer.headers["omnigraph-snapshot-id"]


@each_case(
    ("given", "content", "shown"),
    [
        ("bytes=1-3", b"ell", "bytes 1-3/5"),
        ("bytes=3-", b"lo", "bytes 3-4/5"),
        ("bytes=-2", b"lo", "bytes 3-4/5"),
        ("bytes=0-99", b"Hello", "bytes 0-4/5"),
    ],
)
def test_one_range(photos, given, content, shown):
    answer = get(photos, range=given)
    assert (answer.status_code, answer.content) == (206, content)
    assert answer.headers["content-range"] == shown


@each_case("given", ["bytes=0-1,3-4", "bytes=4-2", "bytes=-", "lines=1-2", "bytes=x"])
def test_several_or_malformed_ranges_are_ignored(photos, given):
    assert (get(photos, range=given).status_code, get(photos, range=given).content) == (200, b"Hello")


@each_case("given", ["bytes=5-", "bytes=99-100", "bytes=-0"])
def test_a_range_behind_the_value_cannot_be_satisfied(photos, given):
    answer = get(photos, range=given)
    assert answer.status_code == 416
    assert answer.headers["content-range"] == "bytes */5"
    assert answer.json()["blob_range"]["length"] == 5


def test_preconditions(photos):
    etag = get(photos).headers["etag"]
    assert get(photos, if_match=etag).status_code == 200
    assert get(photos, if_match="*").status_code == 200
    lost = get(photos, if_match='"other"')
    assert (lost.status_code, lost.json()["code"]) == (412, "conflict")
    assert get(photos, if_match=f"W/{etag}").status_code == 412
    assert get(photos, if_none_match=f'"x", W/{etag}').status_code == 304
    assert get(photos, if_none_match='"other"').status_code == 200
    assert get(photos, range="bytes=0-0", if_range=etag).status_code == 206
    assert get(photos, range="bytes=0-0", if_range='"other"').status_code == 200


def test_a_head_has_no_body_and_no_ranges(photos):
    answer = photos.head(PATH, params=GRACE, headers={"range": "bytes=0-0"})
    assert (answer.status_code, answer.content, answer.headers["content-length"]) == (200, b"", "5")


def test_a_large_value_streams_with_its_length(photos):
    large = GRACE | {"id": "large"}
    answer = photos.get(PATH, params=large)
    assert answer.headers["content-length"] == str(len(LARGE))
    assert answer.content == LARGE
    part = photos.get(PATH, params=large, headers={"range": "bytes=7-4999999"})
    assert (part.status_code, part.content) == (206, LARGE[7:5_000_000])


@each_case(
    ("change", "status"),
    [
        ({"id": "ada"}, 404),
        ({"id": "nobody"}, 404),
        ({"type": "Robot"}, 404),
        ({"property": "age"}, 400),
        ({"entity": "table"}, 400),
        ({"type": "../../etc"}, 404),
        ({"branch": "no"}, 404),
    ],
)
def test_wrong_cells(photos, change, status):
    assert photos.get(PATH, params=GRACE | change).status_code == status


def test_an_external_value_is_answered_by_its_address_and_never_fetched(tmp_path, monkeypatch):
    file = tmp_path / "scan.bin"
    file.write_bytes(b"outside")
    uri = str(tmp_path / "scans.omni")
    Graph.init(uri, "node Person { name: String @key  photo: Blob? }").close()
    monkeypatch.setenv("OMNIGRAPH_EXTERNAL_BLOB_BASES", f'["{tmp_path.as_uri()}"]')
    with open_server(uri) as service, client_of(service) as client:
        line = f'{{"type":"Person","data":{{"name":"far","photo":"{file.as_uri()}"}}}}'
        loaded = client.post("/graphs/default/load", json={"data": line, "mode": "overwrite"})
        assert loaded.status_code == 200, loaded.text
        file.unlink()
        answer = client.get(PATH, params=GRACE | {"id": "far"}, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (302, file.as_uri())
    assert answer.headers["cache-control"] == "no-store"
