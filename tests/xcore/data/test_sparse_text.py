from __future__ import annotations

import io

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_svmlight_file

from xcore.data.readers.sparse_errors import Grammar
from xcore.data.readers.sparse_rows import Lines
from xcore.data.readers.sparse_text import parse_lines
from xcore.data.readers.streams import LineBlock


def halfway(value: float) -> str:
    """The float64 between a float32 and the next: the hardest decimal to round to a float32."""
    return repr((float(np.float32(value)) + float(np.nextafter(np.float32(value), np.float32(np.inf)))) / 2)


HALFWAY = st.floats(2**-60, 2**60, width=32).map(halfway)
DECIMALS = st.one_of(
    HALFWAY,
    st.floats(allow_nan=False, allow_infinity=False, width=32).map(repr),
    st.floats(allow_nan=False, min_value=-1e38, max_value=1e38).map(repr),
    st.tuples(st.integers(-(10**25), 10**25), st.integers(-60, 12)).map(lambda x: f"{x[0]}e{x[1]}"),
    st.decimals(-1000, 1000, places=6).map(lambda x: f"{x:f}"),
    st.decimals(-1, 1, places=24).map(lambda x: f"{x:f}"),
    st.sampled_from(["0", "-0", "+1", ".5", "5.", "-.25", "1E5", "1e+05", "0e999", "0.000", "00012.50", "1e-60"]),
)
ROW = st.tuples(
    st.lists(st.integers(0, 40), max_size=5, unique=True),
    st.dictionaries(st.integers(0, 60), DECIMALS, min_size=1, max_size=8),
)


def parse(text: str, grammar: Grammar | None = None) -> Lines:
    return parse_lines(LineBlock(text.encode(), 1), "f.txt", grammar or Grammar())


def written(rows: list[tuple[list[int], dict[int, str]]]) -> str:
    lines = [",".join(map(str, labels)) + " " + " ".join(f"{i}:{v}" for i, v in f.items()) for labels, f in rows]
    return "\n".join(lines) + "\n"


@settings(max_examples=200, deadline=None)
@given(st.lists(ROW, min_size=1, max_size=6))
def test_parsed_rows_equal_the_written_and_what_sklearn_reads(rows: list[tuple[list[int], dict[int, str]]]) -> None:
    lines = parse(written(rows))
    assert lines.bad == {}
    in_order = [(labels, dict(sorted(features.items()))) for labels, features in rows]  # sklearn reads no other
    file = io.BytesIO(written(in_order).encode())
    X, Y = load_svmlight_file(file, n_features=61, dtype=np.float32, multilabel=True, zero_based=True)
    X = sp.csr_array(X)
    X.sort_indices()
    for array, expected in ((lines.values, X.data), (lines.indices, X.indices), (lines.offsets, X.indptr)):
        np.testing.assert_array_equal(array, expected)
    for row, (labels, features) in enumerate(rows):
        assert lines.labels[lines.label_offsets[row] : lines.label_offsets[row + 1]].tolist() == sorted(labels)
        assert tuple(map(float, sorted(labels))) == Y[row]
        values = [np.float32(float(features[index])) for index in sorted(features)]
        assert lines.values[lines.offsets[row] : lines.offsets[row + 1]].tolist() == [float(v) for v in values]


@settings(max_examples=50, deadline=None)
@given(st.lists(HALFWAY, min_size=50, max_size=50))
def test_decimals_halfway_between_two_float32_round_as_pythons_float_does(decimals: list[str]) -> None:
    lines = parse("1 " + " ".join(f"{index}:{decimal}" for index, decimal in enumerate(decimals)))
    np.testing.assert_array_equal(lines.values, np.array([float(decimal) for decimal in decimals], np.float32))


@settings(max_examples=400, deadline=None)
@given(DECIMALS)
def test_any_decimal_is_the_float32_of_pythons_float(decimal: str) -> None:
    lines = parse(f"1 0:{decimal}")
    assert lines.bad == {}
    assert lines.values.tobytes() == np.array([float(decimal)], np.float32).tobytes()


def test_lines_may_lack_labels_end_in_return_and_have_tabs_and_runs_of_blanks() -> None:
    lines = parse("3,1\t2:1   0:2 \r\n 5:1\n4:1\n7 0:1")
    assert lines.bad == {}
    assert lines.label_offsets.tolist() == [0, 2, 2, 2, 3]
    assert lines.labels.tolist() == [1, 3, 7]
    assert lines.indices.tolist() == [0, 2, 5, 4, 0]
    assert lines.values.tolist() == [2, 1, 1, 1, 1]


def test_comments_and_blank_lines_are_rows_only_in_formats_without_them() -> None:
    text = "# head\n1 0:1 # note 5:5\n\n   \n2 1:1\n"
    lines = parse(text, Grammar(comments=True))
    assert (lines.lines.tolist(), lines.labels.tolist(), lines.indices.tolist()) == ([2, 5], [1, 2], [0, 1])
    plain = parse("1 0:1\n\n2 1:1\n")
    assert plain.offsets.tolist() == [0, 1, 1, 2]


@pytest.mark.parametrize(
    ("line", "column", "problem", "found"),
    [
        ("1,x 0:1", 3, "not a label id", "'x'"),
        ("1,,2 0:1", 3, "not a label id", "nothing"),
        ("1,-2 0:1", 3, "negative label id", "'-2'"),
        ("1.5 0:1", 1, "not a label id", "'1.5'"),
        ("1,9 0:1", 3, "label id out of range", "'9'"),
        ("1,99999999999999999999 0:1", 3, "label id out of range", "'99999999999999999999'"),
        ("1 a:1", 3, "not a feature id", "'a:1'"),
        ("1 qid:3 0:1", 3, "not a feature id", "'qid:3'"),
        ("1 -1:1", 3, "negative feature id", "'-1:1'"),
        ("1 0:1 20:1", 7, "feature id out of range", "'20:1'"),
        ("1 3:1 0:1 3:2", 11, "repeated feature id", "'3:2'"),
        ("1 3:1 03:2", 7, "repeated feature id", "'03:2'"),
        ("1 0:1 5", 7, "no value after the feature id", "'5'"),
        ("1 0:1 5:", 9, "not a number", "nothing"),
        ("1 0:1 5:abc", 9, "not a number", "'abc'"),
        ("1 0:1:2", 5, "not a number", "'1:2'"),
        ("1 0:1_0", 5, "not a number", "'1_0'"),
        ("1 0:1.2.3", 5, "not a number", "'1.2.3'"),
        ("1 0:--1", 5, "not a number", "'--1'"),
        ("1 0:1e", 5, "not a number", "'1e'"),
        ("1 0:1 4:nan", 9, "NaN value", "'nan'"),
        ("1 0:-inf", 5, "infinite value", "'-inf'"),
        ("1 0:1e39", 5, "infinite value", "'1e39'"),
        ("1 0:1e999", 5, "infinite value", "'1e999'"),
        ("1 0:é", 5, "undecodable bytes", "'é'"),
    ],
)
def test_a_bad_line_is_named_with_its_column_and_spoils_no_other(
    line: str, column: int, problem: str, found: str
) -> None:
    lines = parse(f"2 1:1.5\n{line}\n3 2:2.5 7:1\n", Grammar(last_feature=9, last_label=8))
    assert list(lines.bad) == [1]
    error = lines.bad[1]
    assert (error.place.file, error.place.line, error.place.column) == ("f.txt", 2, column)
    assert (error.problem, error.found) == (problem, found)
    assert str(error).startswith(f"f.txt:2:{column}: {problem}: found {found}, expected ")
    assert lines.labels[: lines.label_offsets[1]].tolist() == [2]
    assert lines.labels[lines.label_offsets[2] :].tolist() == [3]
    assert lines.values[lines.offsets[2] :].tolist() == [2.5, 1]


def test_the_same_id_at_the_end_of_a_row_and_the_start_of_the_next_is_no_repeat() -> None:
    assert parse("2,1 5:1 4:1\n2 5:1\n2 5:1\n").bad == {}
