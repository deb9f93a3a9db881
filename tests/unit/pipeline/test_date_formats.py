"""Notations of dates and times: what they take, what they refuse, and that they agree with Python's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.pipeline.load.value_forms import date_format, read_moments
from support.subtests import each_case

EPOCH = datetime(1970, 1, 1)


def read(texts: list[str | None], *formats: str) -> list[str | None]:
    """What texts say: the day, with the time where it is not midnight."""
    found = read_moments(tuple(map(date_format, formats)), pa.array(texts, pa.utf8()))
    values: list[str | None] = []
    for is_read, seconds, nanoseconds in zip(
        found.is_read, found.seconds.tolist(), found.nanoseconds.tolist(), strict=True
    ):
        moment = EPOCH + timedelta(seconds=seconds)
        text = f"{moment:%H:%M:%S}.{nanoseconds:09}"
        day = moment.date().isoformat()
        values.append(
            (f"{day} {text}" if text != "00:00:00.000000000" else day) if is_read else None
        )
    return values


@each_case(
    ("form", "good", "bad"),
    [
        (
            "%d.%m.%Y",
            {"1.2.2024": "2024-02-01", "29.02.2024": "2024-02-29", "31.12.9999": "9999-12-31"},
            [
                "31.02.2024",
                "29.02.2023",
                "0.1.2024",
                "1.13.2024",
                "1.2.24",
                "1.2.0000",
                " 1.2.2024",
            ],
        ),
        ("%Y%m%d", {"20240131": "2024-01-31"}, ["2024131", "202401311", "2024-01-31"]),
        (
            "%m/%d/%y",
            {"1/2/69": "1969-01-02", "1/2/68": "2068-01-02", "12/31/00": "2000-12-31"},
            ["31/12/00", "1/2/1969"],
        ),
        (
            "%d %b %Y",
            {"1 Mar 2020": "2020-03-01", "1 DEC 2020": "2020-12-01"},
            ["1 March 2020", "1 Mär 2020", "1 ſep 2020"],
        ),
        ("%d %B %Y", {"1 AUGUST 2024": "2024-08-01"}, ["1 Auguſt 2024", "1 ſeptember 2024"]),
        ("%B %d, %Y", {"may 5, 2020": "2020-05-05"}, ["Ma 5, 2020"]),
        (
            "%Y-%m-%d %H:%M:%S.%f",
            {
                "2024-01-01 23:59:59.5": "2024-01-01 23:59:59.500000000",
                "2024-01-01 0:00:00.123456789": "2024-01-01 00:00:00.123456789",
            },
            ["2024-01-01 24:00:00.0", "2024-01-01 00:60:00.0", "2024-01-01 00:00:60.0"],
        ),
        (
            "%d.%m.%Y %I:%M %p",
            {
                "1.1.2024 12:30 am": "2024-01-01 00:30:00.000000000",
                "1.1.2024 12:30 PM": "2024-01-01 12:30:00.000000000",
            },
            ["1.1.2024 0:30 am", "1.1.2024 13:30 pm", "1.1.2024 12:30"],
        ),
        (
            "%Y-%m-%dT%H:%M%z",
            {
                "2024-01-01T01:00Z": "2024-01-01 01:00:00.000000000",
                "2024-01-01T01:00+02:00": "2023-12-31 23:00:00.000000000",
                "2024-01-01T01:00-0130": "2024-01-01 02:30:00.000000000",
            },
            ["2024-01-01T01:00", "2024-01-01T01:00+24:00", "2024-01-01T01:00+02"],
        ),
        ("100%% %d.%m.%Y", {"100% 1.2.2024": "2024-02-01"}, ["100 1.2.2024"]),
    ],
)
def test_a_format_takes_whole_texts_of_the_calendar(
    form: str, good: dict[str, str], bad: list[str]
) -> None:
    expected = [*good.values(), *[None] * (len(bad) + 1)]
    assert read([*good, None, *bad], form) == expected
    assert read([*good, None, *bad] * 3, form) == expected * 3


def test_the_first_format_that_fits_the_calendar_counts() -> None:
    texts = ["12/31/2024", "1/2/2024", "2024-02-01", "x", None]
    assert read(texts, "%d/%m/%Y", "%m/%d/%Y", "%Y-%m-%d") == [
        "2024-12-31",
        "2024-02-01",
        "2024-02-01",
        None,
        None,
    ]


@each_case(
    ("form", "text"),
    [
        ("%d.%m", "it has no year (%Y, %y)"),
        ("%Y", "it has no month"),
        ("%Y-%m", "it has no day"),
        ("%q", "`%q` is not a directive; known are %Y"),
        ("%Y-%m-%d %", "`%` is not a directive"),
        ("%d.%m.%Y %d", "more than one of %d"),
        ("%d.%m.%Y %B", "more than one of %m, %b, %B"),
        ("%d.%m.%Y %I:%M", "%I (hours up to 12) and %p (AM or PM) belong together"),
        ("%d.%m.%Y %H:%M %p", "belong together"),
        ("%d.%m.%Y %H %S", "%S without %M"),
        ("%d.%m.%Y %M", "%M without %H"),
        ("%d.%m.%Y %f", "%f without %S"),
    ],
)
def test_a_format_that_says_too_little_or_too_much_is_refused(form: str, text: str) -> None:
    with pytest.raises(ValueError) as caught:
        date_format(form)
    assert text in str(caught.value)


@given(
    moment=st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(2068, 12, 31)),
    form=st.sampled_from(
        [
            "%d.%m.%Y",
            "%Y%m%d%H%M%S",
            "%m/%d/%y %I:%M:%S %p",
            "%d-%b-%Y %H:%M:%S.%f",
            "%B %d, %Y",
            "%Y/%m/%d %H:%M",
        ]
    ),
)
def test_formats_mean_what_they_mean_in_python(moment: datetime, form: str) -> None:
    text = moment.strftime(form)
    exact = datetime.strptime(text, form).replace(tzinfo=UTC)
    found = read_moments((date_format(form),), pa.array([text]))
    assert found.is_read.tolist() == [True]
    whole = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=int(found.seconds[0]))
    assert whole + timedelta(microseconds=int(found.nanoseconds[0]) // 1000) == exact
