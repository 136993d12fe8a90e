"""Rows in, ids, names and scores out: one request at a time, and whole files block by block."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xcore.components import silent
from xcore.data.readers.family import AnyRowReader
from xcore.errors import ConfigError, InputError
from xcore.inference.batches import Batch, score_batch
from xcore.inference.scorer import Cut, Scorer
from xcore.numeric.matrices import NO_LABEL, Float32, TopK, topk_of_dense
from xcore.text.tfidf import Tfidf

LABELS = ["eagle", "owl", "wren", "heron"]
BLOCK = 1 << 13  # two rows of a Parquet file


class Linear:
    """A model by hand: the score of label l is the weighted sum of the features; negative scores are not offered."""

    form, n_features, n_labels = "sparse", 3, 4

    def __init__(self) -> None:
        self.weights: Float32 = np.array([[1, 0, 0, 0.5], [0, 1, 0, 0.5], [0, 0, 1, -1]], np.float32)
        self.rows_seen = 0

    def predict_topk(self, X: Any, k: int) -> TopK:
        self.rows_seen += X.shape[0]
        top = topk_of_dense(X @ self.weights, k)
        gone = top.scores < 0
        return TopK(np.where(gone, NO_LABEL, top.labels), np.where(gone, -np.inf, top.scores))

    def save(self, directory: Path) -> None: ...

    @classmethod
    def load(cls, directory: Path) -> "Linear":
        return cls()


def sparse_scorer() -> Scorer:
    return Scorer(Linear(), "sparse", names("id-{}"), names("{}"))


def text_scorer() -> Scorer:
    text = Tfidf().fit([["air bark cold"]], silent)
    return Scorer(Linear(), "text", names("id-{}"), names("{}"), text)


def names(form: str) -> pa.ChunkedArray:
    return pa.chunked_array([[form.format(label) for label in LABELS]])


def rows(indices: list[list[int]], values: list[list[float]]) -> pa.RecordBatch:
    return pa.record_batch({"indices": pa.array(indices, pa.list_(pa.int64())), "values": pa.array(values)})


def test_an_answer_has_ids_names_and_scores_best_first() -> None:
    answer = sparse_scorer().answer(rows([[0, 1], [2]], [[3.0, 1.0], [2.0]]), Cut(k=3))
    assert answer.to_pylist() == [
        {"labels": ["id-eagle", "id-heron", "id-owl"], "names": ["eagle", "heron", "owl"], "scores": [3.0, 2.0, 1.0],
         "known": True},
        {"labels": ["id-wren", "id-eagle", "id-owl"], "names": ["wren", "eagle", "owl"], "scores": [2.0, 0.0, 0.0],
         "known": True},
    ]  # fmt: skip


def test_rows_of_which_the_model_knows_nothing_are_flagged() -> None:
    assert sparse_scorer().answer(rows([[0], [], [1]], [[3.0], [], [0.0]]), Cut())["known"].to_pylist() == [
        True,
        False,
        False,
    ]
    texts = pa.record_batch({"text": [TEXTS[0], "zzzz qqqq", " ", None]})
    assert text_scorer().answer(texts, Cut())["known"].to_pylist() == [True, False, False, False]


def test_a_model_gets_arrays_like_those_of_training() -> None:
    """Arrow's arrays are read-only, for which compiled kernels are another type."""
    batch = pa.record_batch(
        {"indices": pa.array([[0, 1]], pa.list_(pa.int32())), "values": pa.array([[3.0, 1.0]], pa.list_(pa.float32()))}
    )
    X = sparse_scorer().features(batch)
    assert X.data.flags.writeable
    assert X.indices.flags.writeable


def test_a_threshold_keeps_labels_that_score_at_least_that() -> None:
    answer = sparse_scorer().answer(rows([[0, 1], [2]], [[3.0, 1.0], [2.0]]), Cut(k=4, threshold=2.0))
    assert answer["labels"].to_pylist() == [["id-eagle", "id-heron"], ["id-wren"]]
    assert answer["scores"].to_pylist() == [[3.0, 2.0], [2.0]]


@pytest.mark.filterwarnings("error")
def test_a_threshold_beyond_every_score_keeps_nothing_and_says_nothing() -> None:
    answer = sparse_scorer().answer(rows([[0]], [[1.0]]), Cut(threshold=1e308))
    assert answer["labels"].to_pylist() == [[]]


@given(st.lists(st.lists(st.floats(-4, 4, width=32), min_size=3, max_size=3), min_size=1, max_size=6),
       st.integers(1, 5), st.none() | st.floats(-1, 3, width=32))  # fmt: skip
@settings(deadline=None)
def test_what_is_kept_is_what_brute_force_keeps(X: list[list[float]], k: int, threshold: float | None) -> None:
    answer = sparse_scorer().answer(rows([[0, 1, 2]] * len(X), X), Cut(k=k, threshold=threshold)).to_pylist()
    for row, got in zip(X, answer, strict=True):
        scores = np.array([row], np.float32) @ Linear().weights
        order = sorted(range(4), key=lambda label: (-scores[0, label], label))[:k]
        least = 0.0 if threshold is None else max(0.0, threshold)
        assert got["names"] == [LABELS[label] for label in order if scores[0, label] >= least]


def test_text_goes_through_the_vocabulary_and_unknown_words_count_nothing() -> None:
    scorer = text_scorer()
    batch = pa.record_batch({"text": ["bark", "bark moon moon", None]})
    X = scorer.features(batch).toarray()
    np.testing.assert_allclose(X, [[0, 1, 0], [0, 1, 0], [0, 0, 0]])


def test_ids_in_any_order_and_twice_are_added_up() -> None:
    X = sparse_scorer().features(rows([[2, 0, 2]], [[1.0, 5.0, 0.5]])).toarray()
    np.testing.assert_allclose(X, [[5, 0, 1.5]])


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (rows([[0], [3]], [[1.0], [1.0]]), r"row 1 \(from 0\) .* indices from 0 to 2"),
        (rows([[0], [-1]], [[1.0], [1.0]]), r"row 1 \(from 0\) .* indices from 0 to 2"),
        (rows([[0, 1]], [[1.0]]), "as many values as indices"),
        (rows([[0]], [[float("nan")]]), "finite values"),
        (rows([[0], [0]], [[1.0], [1e308]]), r"row 1 \(from 0\) .* finite values that fit a float32"),
        (rows([[1, 1]], [[3e38, 3e38]]), "finite values that fit a float32"),  # only their sum is too large
        (pa.record_batch({"text": ["a"]}), "need a column 'indices', got text"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_rows_outside_the_models_features_are_refused(batch: pa.RecordBatch, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        sparse_scorer().features(batch)


def test_vectors_must_be_as_long_as_in_training() -> None:
    scorer = Scorer(Linear(), "vector", names("{}"), names("{}"))
    good = pa.record_batch({"vector": pa.array([[1.0, 0.0, 2.0]], pa.list_(pa.float32(), 3))})
    np.testing.assert_allclose(scorer.features(good), [[1, 0, 2]])
    with pytest.raises(ConfigError, match=r"row 0 .* a vector of 3"):
        scorer.features(pa.record_batch({"vector": [[1.0, 2.0]]}))


@pytest.mark.filterwarnings("error")
def test_vectors_must_fit_a_float32() -> None:
    scorer = Scorer(Linear(), "vector", names("{}"), names("{}"))
    with pytest.raises(ConfigError, match=r"row 0 .* fit a float32"):
        scorer.features(pa.record_batch({"vector": [[1.0, 2.0, 1e300]]}))


def test_parts_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(ConfigError, match="knows 4 labels but the label table has 1"):
        Scorer(Linear(), "sparse", pa.chunked_array([["a"]]), pa.chunked_array([["a"]]))
    with pytest.raises(ConfigError, match="needs the vocabulary"):
        Scorer(Linear(), "text", names("{}"), names("{}"))
    with pytest.raises(ConfigError, match="3 features but the vocabulary has 2"):
        Scorer(Linear(), "text", names("{}"), names("{}"), Tfidf().fit([["air bark"]], silent))


# Files

TEXTS = ["air", "bark", "cold", "air bark", "cold cold air", "moon", "bark bark cold"]


class Job:
    """Scores files in a folder of its own, where it can be stopped and called again."""

    def __init__(self, folder: Path, files: list[Path], reader: Mapping[str, Any], **more: Any) -> None:
        self.scratch, self.folder = folder / "scratch", folder
        self.batch = Batch.model_validate({"reader": reader, "files": files, **more})
        self.runs = 0

    def run(self, scorer: Scorer, stop_after: int | None = None, **more: Any) -> dict[str, Any]:
        self.runs += 1
        self.out = self.folder / f"out-{self.runs}"
        self.out.mkdir(parents=True)

        def report(step: int, total: int, metrics: Mapping[str, float] | None = None) -> None:
            if step == stop_after:
                raise KeyboardInterrupt

        settings = {"names": True, "block_bytes": BLOCK, "cut": Cut(k=2)} | more
        return score_batch(scorer, self.batch, directory=self.out, scratch=self.scratch, report=report, **settings)

    def table(self) -> list[dict[str, Any]]:
        return pq.read_table(self.out / "scores.parquet").to_pylist()

    def bytes(self) -> bytes:
        return (self.out / "scores.parquet").read_bytes()


def write(folder: Path, kind: str) -> tuple[Path, dict[str, Any]]:
    """The texts as a file of a kind, and its reader."""
    folder.mkdir(exist_ok=True)
    path = folder / f"rows.{kind}"
    ids = [f"row-{number}" for number in range(len(TEXTS))]
    if kind == "parquet":
        pq.write_table(pa.table({"key": ids, "body": TEXTS}), path)
    elif kind == "jsonl":
        lines = [json.dumps({"key": key, "body": text}) for key, text in zip(ids, TEXTS, strict=True)]
        path.write_text("\n".join(lines) + "\n")
    else:
        path.write_text("key,body\n" + "".join(f"{key},{text}\n" for key, text in zip(ids, TEXTS, strict=True)))
    more = {"label_delimiter": ";"} if kind == "csv" else {}
    return path, {"kind": kind, "text": "body", "id": "key", **more}


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "csv"])
def test_every_format_gives_every_row_its_id_labels_and_scores(tmp_path: Path, kind: str) -> None:
    path, reader = write(tmp_path, kind)
    job = Job(tmp_path, [path], reader)
    counts = job.run(text_scorer())
    rows = job.table()
    assert [row["id"] for row in rows] == [f"row-{number}" for number in range(len(TEXTS))]
    expected = text_scorer().answer(pa.record_batch({"text": TEXTS}), Cut(k=2)).to_pylist()
    assert [{key: row[key] for key in ("labels", "names", "scores", "known")} for row in rows] == expected
    assert {row["threshold"] for row in rows} == {None}
    assert counts["rows"] == len(TEXTS)
    assert counts["labels_given"] == sum(len(row["labels"]) for row in rows)
    assert counts["rows_per_second"] > 0


def test_rows_without_ids_are_numbered_over_all_files_and_names_are_optional(tmp_path: Path) -> None:
    path, reader = write(tmp_path, "parquet")
    job = Job(tmp_path, [path, path], reader | {"id": None})
    job.run(text_scorer(), names=False, cut=Cut(k=1, threshold=0.5))
    assert [row["id"] for row in job.table()] == [str(number) for number in range(2 * len(TEXTS))]
    assert set(job.table()[0]) == {"id", "labels", "scores", "known", "threshold"}
    assert {row["threshold"] for row in job.table()} == {0.5}


@pytest.mark.parametrize("stop_after", [1, 2, 3])
def test_a_job_that_was_stopped_goes_on_after_its_finished_blocks_to_the_same_bytes(
    tmp_path: Path, stop_after: int
) -> None:
    path, reader = write(tmp_path, "parquet")
    whole = Job(tmp_path / "whole", [path], reader)
    whole.run(text_scorer())
    job, scorer = Job(tmp_path / "cut", [path], reader), text_scorer()
    with pytest.raises(KeyboardInterrupt):
        job.run(scorer, stop_after=stop_after)
    assert seen(scorer) == 2 * stop_after
    again = text_scorer()
    counts = job.run(again)
    assert counts["rows_from_before"] == 2 * stop_after
    assert seen(again) == len(TEXTS) - 2 * stop_after
    assert job.bytes() == whole.bytes()


def seen(scorer: Scorer) -> int:
    assert isinstance(scorer.fitted, Linear)
    return scorer.fitted.rows_seen


def test_a_damaged_or_cleared_block_is_scored_again(tmp_path: Path) -> None:
    path, reader = write(tmp_path, "parquet")
    job = Job(tmp_path, [path], reader)
    job.run(text_scorer())
    expected = job.bytes()
    first, second, *_ = sorted(job.scratch.iterdir())
    first.write_bytes(first.read_bytes()[:100])
    second.unlink()
    scorer = text_scorer()
    job.run(scorer)
    assert seen(scorer) == 4
    assert job.bytes() == expected


def test_another_process_that_clears_the_scratch_folder_does_no_harm(tmp_path: Path) -> None:
    path, reader = write(tmp_path, "parquet")
    job = Job(tmp_path, [path], reader)
    job.run(text_scorer())
    expected = job.bytes()

    class Clearing(Linear):
        def predict_topk(self, X: Any, k: int) -> TopK:
            for part in job.scratch.iterdir():
                part.unlink()
            return super().predict_topk(X, k)

    scorer = text_scorer()
    (job.scratch / "00000001.arrow").unlink()
    job.run(Scorer(Clearing(), "text", scorer.label_ids, scorer.label_names, scorer.text))
    assert job.bytes() == expected


def test_a_bad_row_stops_the_job_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"body": "air"}\n{"body": 5}\n')
    with pytest.raises(InputError, match=r"rows\.jsonl:2 \(column 'body'\): wrong type: found 5, expected a text"):
        Job(tmp_path, [path], {"kind": "jsonl", "text": "body"}).run(text_scorer())


def test_bad_rows_can_be_set_aside_and_the_others_keep_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"body": "air"}\n{"body": 5}\n{"body": "bark"}\n')
    quarantined = {"on_bad_row": "quarantine", "max_bad_share": 0.5}
    job = Job(tmp_path, [path], {"kind": "jsonl", "text": "body"}, **quarantined)
    counts = job.run(text_scorer())
    assert [row["id"] for row in job.table()] == ["0", "2"]
    assert counts["quarantined"]["rows"] == 1
    assert pq.read_table(job.out / "quarantine.parquet")["line"].to_pylist() == [2]
    job = Job(tmp_path / "strict", [path], {"kind": "jsonl", "text": "body"}, **(quarantined | {"max_bad_share": 0.1}))
    with pytest.raises(InputError, match="too many bad rows"):
        job.run(text_scorer())


def test_rows_of_another_form_are_refused_before_any_is_scored(tmp_path: Path) -> None:
    path, reader = write(tmp_path, "parquet")
    with pytest.raises(ConfigError, match="the reader gives text rows but the model was trained on sparse rows"):
        Job(tmp_path, [path], reader).run(sparse_scorer())


SPARSE = [([0, 1], [3.0, 1.0]), ([2], [2.0]), ([], [])]


def sparse_file(folder: Path, kind: str) -> tuple[Path, AnyRowReader | dict[str, Any]]:
    path = folder / f"rows.{kind}"
    lines = [" ".join(f"{i}:{v}" for i, v in zip(*row, strict=True)) for row in SPARSE[:2]]
    if kind == "sparse-parquet":
        indices, values = zip(*SPARSE, strict=True)
        pq.write_table(pa.table({"indices": pa.array(indices, pa.list_(pa.int32())), "values": list(values)}), path)
    elif kind == "xmc":
        path.write_text("2 3 4\n" + "".join(f"0 {line}\n" for line in lines))
    else:
        path.write_text("".join(f"0 {line}\n" for line in lines))
    return path, {"kind": kind} | ({"first_index": 0} if kind == "libsvm" else {})


@pytest.mark.parametrize("kind", ["sparse-parquet", "xmc", "libsvm"])
def test_sparse_rows_are_scored_whatever_labels_stand_beside_them(tmp_path: Path, kind: str) -> None:
    path, reader = sparse_file(tmp_path, kind)
    job = Job(tmp_path, [path], dict(reader))
    job.run(sparse_scorer())
    assert [row["names"] for row in job.table()][:2] == [["eagle", "heron"], ["wren", "eagle"]]


def test_the_header_of_a_file_must_agree_with_the_model(tmp_path: Path) -> None:
    path = tmp_path / "rows.xmc"
    path.write_text("1 7 4\n0 6:1\n")
    with pytest.raises(ConfigError, match="7 features but the model was trained on 3"):
        Job(tmp_path, [path], {"kind": "xmc"}).run(sparse_scorer())


def test_a_feature_that_the_model_does_not_know_is_a_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.svm"
    path.write_text("0 1:1\n0 7:1\n")
    with pytest.raises(InputError, match=r"rows\.svm:2: feature id out of range: found 7, expected at most 2"):
        Job(tmp_path, [path], {"kind": "libsvm", "first_index": 0}).run(sparse_scorer())


def test_feature_numbers_must_not_depend_on_the_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="first_index is auto"):
        Batch.model_validate({"reader": {"kind": "libsvm"}, "files": ["x"]})


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (([1.5], [1.0]), "not a feature id"),
        (([-1.0], [1.0]), "not a feature id"),
        (([1.0], [float("inf")]), "not a finite value"),
        (([1.0, 1.0], [1.0, 2.0]), "repeated feature id"),
        (([1.0, 2.0], [1.0]), "wrong length"),
        ((None, [1.0]), "row with no features"),
    ],
)
def test_bad_sparse_rows_of_a_parquet_file_are_named(tmp_path: Path, row: Any, message: str) -> None:
    path = tmp_path / "rows.parquet"
    lists = pa.list_(pa.float64())
    indices, values = pa.array([[0.0, 2.0], row[0]], lists), pa.array([[1.0, 1.0], row[1]], lists)
    pq.write_table(pa.table({"indices": indices, "values": values}), path)
    with pytest.raises(InputError, match=rf"rows\.parquet:2 .*{message}"):
        Job(tmp_path, [path], {"kind": "sparse-parquet"}).run(sparse_scorer())
    aside = {"on_bad_row": "quarantine", "max_bad_share": 0.5}
    job = Job(tmp_path / "aside", [path], {"kind": "sparse-parquet"}, **aside)
    job.run(sparse_scorer())
    assert [row["id"] for row in job.table()] == ["0"]
