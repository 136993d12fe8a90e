"""A challenger against a champion: the same rows for both, and a verdict by paired bootstrap."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from xcore.components import silent
from xcore.data.dataset import Dataset
from xcore.data.ingest import ingest
from xcore.data.source import Source
from xcore.inference.promotion import NotComparable, Promotion, champion_ranking, compare, fair_rows
from xcore.inference.scorer import Scorer
from xcore.numeric.matrices import NO_LABEL, TopK, binary_csr, topk_of_dense
from xcore.text.tfidf import Tfidf

N_LABELS = 6


def ranking(labels: Sequence[Sequence[int]]) -> TopK:
    table = np.array(labels, np.int32)
    return TopK(table, -np.cumsum(np.ones(table.shape, np.float32), axis=1))


def verdict_of(challenger: TopK, champion: TopK, truth: list[int], **options: Any) -> Any:
    Y = binary_csr(np.array(truth), np.arange(len(truth) + 1), N_LABELS)
    promotion = Promotion(**({"metric": "precision_at_1", "n_bootstrap": 400} | options))
    counts = np.arange(N_LABELS, 0, -1, dtype=np.int64)
    rng = np.random.default_rng(0)
    return compare(challenger, champion, Y, promotion, train_counts=counts, n_train=30, rng=rng)


TRUTH = [number % N_LABELS for number in range(60)]
RIGHT = ranking([[label, (label + 1) % N_LABELS] for label in TRUTH])
WRONG = ranking([[(label + 1) % N_LABELS, (label + 2) % N_LABELS] for label in TRUTH])
# Right in 3 rows of 5.
MIXED = ranking(
    [row if at % 5 < 3 else other for at, (row, other) in enumerate(zip(RIGHT.labels, WRONG.labels, strict=True))]
)


def test_a_challenger_that_is_right_more_often_is_better_and_the_table_says_by_how_much() -> None:
    verdict = verdict_of(RIGHT, MIXED, TRUTH)
    assert verdict.better
    assert verdict.share_above_margin == 1.0
    first = verdict.table.to_pylist()[0]
    assert (first["metric"], first["champion"], first["challenger"]) == ("precision_at_1", pytest.approx(0.6), 1.0)
    assert first["difference"] == pytest.approx(0.4)
    assert first["low"] < 0.4 < first["high"]
    assert "recall_at_1" in verdict.table["metric"].to_pylist()


def test_the_same_ranking_is_never_better_than_itself() -> None:
    verdict = verdict_of(MIXED, MIXED, TRUTH)
    assert not verdict.better
    assert verdict.share_above_margin == 0.0


def test_a_worse_challenger_is_not_better() -> None:
    assert not verdict_of(WRONG, MIXED, TRUTH).better


@pytest.mark.parametrize(("margin", "better"), [(0.0, True), (0.2, True), (0.39, False), (0.5, False)])
def test_the_margin_must_be_passed_with_confidence(margin: float, better: bool) -> None:
    assert verdict_of(RIGHT, MIXED, TRUTH, margin=margin).better is better


def test_confidence_is_the_share_of_resamples_that_is_needed() -> None:
    almost = ranking([RIGHT.labels[0].tolist(), *WRONG.labels[1:].tolist()])  # one row more than none
    verdict = verdict_of(almost, WRONG, TRUTH, n_bootstrap=4000)
    assert verdict.share_above_margin == pytest.approx(1 - (1 - 1 / 60) ** 60, abs=0.03)  # the row is drawn at all
    assert not verdict.better
    assert verdict_of(almost, WRONG, TRUTH, confidence=0.5).better


@pytest.mark.parametrize(
    "metric", ["coverage_at_5", "precision", "precision_at_0", "middle/recall_at_1", "log_likelihood"]
)
def test_only_metrics_that_are_sums_over_rows_can_decide(metric: str) -> None:
    with pytest.raises(ValidationError, match=rf"metric '{metric}' is not known here: expected one of precision_at_K"):
        Promotion(metric=metric)


# The champion on a newer dataset


class Favourite:
    """A model by hand: a row's best label is that of its heaviest feature."""

    form = "sparse"

    def __init__(self, n_features: int, n_labels: int) -> None:
        self.n_features, self.n_labels = n_features, n_labels

    def predict_topk(self, X: Any, k: int) -> TopK:
        return topk_of_dense(X.toarray()[:, : self.n_labels], k)

    def save(self, directory: Path) -> None: ...

    @classmethod
    def load(cls, directory: Path) -> "Favourite":
        raise NotImplementedError


def dataset(folder: Path, train: list[tuple[str, str]], test: list[tuple[str, str]]) -> Dataset:
    """Texts with one label each."""
    folder.mkdir()
    paths = {}
    for split, rows in (("train", train), ("test", test)):
        paths[split] = folder / f"{split}.jsonl"
        paths[split].write_text("".join(json.dumps({"text": text, "labels": [label]}) + "\n" for text, label in rows))
    source = Source.model_validate(
        {"reader": {"kind": "jsonl", "text": "text"}, "train": [paths["train"]], "test": [paths["test"]]}
    )
    (folder / "data").mkdir()
    ingest(source, folder / "data", np.random.default_rng(0), silent)
    return Dataset(folder / "data")


def scorer_of(trained_on: Dataset) -> Scorer:
    """Words are named so that feature i speaks for label i."""
    text = Tfidf().fit([block.to_pylist() for block in trained_on.text_blocks("train")], silent)
    labels = trained_on.label_table()
    return Scorer(Favourite(text.n_features, trained_on.n_labels), "text", labels["id"], labels["name"], text)


OLD = [("aa", "ant"), ("bb", "bee"), ("cc", "cat")]


def test_the_champion_reads_texts_by_its_own_vocabulary_and_its_labels_get_the_new_numbers(tmp_path: Path) -> None:
    old = dataset(tmp_path / "old", OLD, OLD)
    new = dataset(
        tmp_path / "new", [("aa", "aardvark"), ("bb", "bee"), ("cc", "cat")], [("cc dd", "cat"), ("aa", "bee")]
    )
    assert new.label_table()["id"].to_pylist() == ["aardvark", "bee", "cat"]
    top = champion_ranking(scorer_of(old), new, "test", 3)
    assert top.labels[:, 0].tolist() == [2, NO_LABEL]  # cat is number 2; ant is gone and takes its place as a miss


@pytest.mark.parametrize(
    ("form", "message"), [("sparse", "takes sparse rows"), ("labels", "none of the champion's 3 labels")]
)
def test_a_champion_of_another_form_or_label_space_is_not_comparable(tmp_path: Path, form: str, message: str) -> None:
    old = dataset(tmp_path / "old", OLD, OLD)
    new = dataset(tmp_path / "new", [("aa", "x")], [("aa", "x")])
    champion = scorer_of(old)
    if form == "sparse":
        champion = Scorer(champion.fitted, "sparse", champion.label_ids, champion.label_names)
    with pytest.raises(NotComparable, match=message):
        champion_ranking(champion, new, "test", 1)


def test_a_champion_of_other_features_is_not_comparable(tmp_path: Path) -> None:
    path = tmp_path / "rows.txt"
    path.write_text("2 5 3\n0 1:1\n1 4:1\n")
    (tmp_path / "data").mkdir()
    source = Source.model_validate({"reader": {"kind": "xmc"}, "train": [path], "test": [path]})
    ingest(source, tmp_path / "data", np.random.default_rng(0), silent)
    ids = pa.chunked_array([["0", "1", "2"]])
    with pytest.raises(NotComparable, match="trained on 4 features, the new dataset has 5"):
        champion_ranking(Scorer(Favourite(4, 3), "sparse", ids, ids), Dataset(tmp_path / "data"), "test", 1)
    top = champion_ranking(Scorer(Favourite(5, 3), "sparse", ids, ids), Dataset(tmp_path / "data"), "test", 1)
    assert len(top) == 2


def test_rows_that_only_one_of_the_two_was_trained_on_are_left_out(tmp_path: Path) -> None:
    old = dataset(tmp_path / "old", OLD, [("zz", "ant")])
    new = dataset(
        tmp_path / "new", [("bb", "bee"), ("ee", "ant")], [("aa", "ant"), ("bb", "bee"), ("ee", "ant"), ("ff", "cat")]
    )
    # aa: only the champion knows it; bb: both; ee: only the challenger; ff: neither
    assert fair_rows(old, new, "test").tolist() == [False, True, False, True]
    assert fair_rows(new, new, "test").all()


def test_where_no_fair_row_is_left_nothing_is_compared(tmp_path: Path) -> None:
    old = dataset(tmp_path / "old", OLD, OLD)
    new = dataset(tmp_path / "new", [("xx", "ant")], [("aa", "ant"), ("bb", "bee")])
    with pytest.raises(NotComparable, match="every row of the new test split"):
        fair_rows(old, new, "test")
