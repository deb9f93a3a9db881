"""Cells of blobs: bytes and addresses are never taken for each other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from omnigraph.core.values import (
    ADDRESS_MARK,
    MARK,
    blob_text,
    managed_bytes,
    managed_cell,
    reference_cell,
    reference_of,
)

#: Bytes, and bytes made to look like something else.
BYTES = st.binary() | st.builds(
    lambda begin, rest: begin + rest,
    st.sampled_from([MARK, MARK[:-1], ADDRESS_MARK, MARK + b"b", MARK * 2]),
    st.binary(max_size=20),
)


@given(BYTES)
def test_bytes_come_back_and_are_no_address(data: bytes) -> None:
    assert managed_bytes(managed_cell(data)) == data
    assert reference_of(managed_cell(data)) is None


@given(st.text(min_size=1))
def test_an_address_comes_back(uri: str) -> None:
    assert reference_of(reference_cell(uri)) == uri


@given(BYTES, BYTES)
def test_different_bytes_have_different_cells(one: bytes, other: bytes) -> None:
    assert (managed_cell(one) == managed_cell(other)) == (one == other)


def test_a_cell_is_spelled_as_a_load_reads_it() -> None:
    assert blob_text(managed_cell(MARK)) == "base64:1sFPDpo7Tl2PJ7FgWsl+NA=="
    assert blob_text(reference_cell("s3://b/k")) == "s3://b/k"
