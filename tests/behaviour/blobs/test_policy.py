"""Which external addresses are allowed: one normal form, borders of segments, links, credentials, limits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omnigraph.commit.environment import GraphSettings
from omnigraph.errors import (
    BadRequestError,
    ExternalBlobPolicyError,
    ResourceLimitError,
    without_credentials,
)
from omnigraph.storage.external import EXTERNAL_URI_BYTES, normal_form, policy_of
from support.subtests import each_case


@each_case(
    ("given", "normal"),
    [
        ("HTTPS://Example.ORG:443/a/./b/../c", "https://example.org/a/c"),
        ("http://example.org:80", "http://example.org/"),
        ("http://example.org:8080/x/", "http://example.org:8080/x/"),
        ("https://h/%7Euser/%41%20b", "https://h/~user/A%20b"),
        ("https://h/a?b=c%20d&e", "https://h/a?b=c%20d&e"),
        ("http://[::1]:80/x", "http://[::1]/x"),
        ("file://localhost//scans//a%23b", "file:///scans/a%23b"),
        ("s3://bucket/deep/käy", "s3://bucket/deep/k%C3%A4y"),
    ],
)
def test_spellings_that_mean_the_same_have_one_normal_form(given: str, normal: str) -> None:
    assert str(normal_form(given)) == normal
    assert str(normal_form(normal)) == normal


@each_case(
    "uri",
    [
        *("", "plain", "file:relative", "file://host/x", "ftp://h/x", "data:,x", "BASE64:AAAA"),
        *("http:///x", "s3:///x", "s3://Bucket/x", "s3://b:80/x", "http://h%41/x", "http://[::1/x"),
        *("https://me:secret@h/x", "https://me@h/x", "s3://id:key@b/x", "http://h:port/x"),
        *("https://h/x?X-Amz-Signature=1", "https://h/x?a=1&TOKEN=2", "https://h/x?sig"),
        *("https://h/x#part", "s3://b/x?versionId=1", "file:///x?y"),
        *(
            "http://h/../x",
            "http://h/%2e%2e/x",
            "http://h/a%2Fb",
            "http://h/a%5Cb",
            "http://h\\@g/",
        ),
        *("s3://b/a/../b", "s3://b/a//b", "http://h/a//b", "http://h/%00", "http://h/%FF"),
        *("http://h/a b", "http://h/a\nb", " http://h/a"),
    ],
)
def test_what_is_malformed_or_ambiguous_or_secret_has_none(uri: str) -> None:
    with pytest.raises(ValueError):  # the kind matters here, texts are for people
        normal_form(uri)
    with pytest.raises(ExternalBlobPolicyError):
        policy_of(["http://h", "file:///", "s3://b"]).check(uri)


@each_case(
    ("base", "inside", "outside"),
    [
        ("https://h/a", "https://H:443/a", "https://h/ab"),
        ("https://h/a/", "https://h/x/../a/b", "https://h/a/../b"),
        ("https://h", "https://h/anything", "https://h.evil/anything"),
        ("https://h", "https://h/%61", "http://h/a"),
        ("https://h:8443/", "https://h:8443/a", "https://h/a"),
        ("s3://b/p", "s3://b/p/k", "s3://b/pk"),
        ("s3://b", "s3://b/k", "s3://bb/k"),
    ],
)
def test_a_base_ends_at_the_border_of_a_segment(base: str, inside: str, outside: str) -> None:
    policy = policy_of([base])
    assert str(policy.check(inside))
    with pytest.raises(ExternalBlobPolicyError, match="none of the allowed bases"):
        policy.check(outside)


def test_links_are_followed_before_local_paths_are_compared(tmp_path: Path) -> None:
    for name in ("open", "shut"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(b"x")
    (tmp_path / "open" / "escape").symlink_to(tmp_path / "shut")
    (tmp_path / "alias").symlink_to(tmp_path / "open")
    policy = policy_of([(tmp_path / "open").as_uri()])
    assert policy.check((tmp_path / "alias" / "file").as_uri())
    assert policy_of([(tmp_path / "alias").as_uri()]).check((tmp_path / "open" / "file").as_uri())
    for outside in (tmp_path / "shut" / "file", tmp_path / "open" / "escape" / "file", tmp_path):
        with pytest.raises(ExternalBlobPolicyError):
            policy.check(outside.as_uri())
    assert policy_of(["file:///"]).check((tmp_path / "shut" / "file").as_uri())


def test_an_address_has_a_longest_length() -> None:
    policy = policy_of(["https://h"])
    longest = "https://h/" + "x" * (EXTERNAL_URI_BYTES - 10)
    assert str(policy.check(longest)) == longest
    with pytest.raises(ResourceLimitError):
        policy.check(longest + "x")


@each_case("bases", ["https://h", ["nowhere"], ["https://h/?a=b"], [1]])
def test_a_malformed_base_is_refused(bases: list[str]) -> None:
    with pytest.raises(BadRequestError):
        policy_of(bases)


def test_secrets_are_never_shown() -> None:
    uri = "https://me:hush@h/x?X-Amz-Signature=hush#hush"
    assert without_credentials(uri) == "https://h/x"
    assert "hush" not in without_credentials("http://[me:hush@h/x")
    with pytest.raises(ExternalBlobPolicyError) as caught:
        policy_of(["https://h"]).check(uri)
    assert "hush" not in json.dumps(caught.value.to_json())


@pytest.mark.parametrize("text", ["", "https://h", '{"a": 1}', "[1]", '["nowhere"]', "[" * 100_000])
def test_a_variable_that_cannot_be_read_allows_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    monkeypatch.setenv("OMNIGRAPH_EXTERNAL_BLOB_BASES", text)
    assert GraphSettings.from_environment().external_blobs.bases == ()
    assert "allows nothing" in caplog.text


def test_the_variable_lists_bases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_EXTERNAL_BLOB_BASES", '["s3://b/p", "https://h"]')
    found = GraphSettings.from_environment().external_blobs.bases
    assert [str(base) for base in found] == ["s3://b/p", "https://h/"]
