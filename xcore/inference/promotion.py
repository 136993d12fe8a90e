"""Whether a new model (the challenger) is better than the one in use (the champion), on rows that neither has seen."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import Field, field_validator

from xcore.components import Component
from xcore.data.dataset import Dataset
from xcore.data.feature_files import COLUMNS
from xcore.data.fingerprints import fingerprints
from xcore.data.readers.base import Split
from xcore.errors import ConfigError
from xcore.inference.scorer import Scorer
from xcore.metrics import measurable, paired_bootstrap, row_values
from xcore.metrics.family import find_metric, metric_modules, paired_metrics
from xcore.numeric.matrices import CSR, NO_LABEL, Int64, TopK

REPORTED_RANKS = (1, 3, 5)
NUMBERS = ("champion", "challenger", "difference", "low", "high", "share_better")
SCHEMA = pa.schema([("metric", pa.string()), *((name, pa.float64()) for name in NUMBERS)])


class NotComparable(ConfigError):
    """The champion cannot be measured on the challenger's held-out rows."""


class Promotion(Component):
    """When a challenger replaces the champion."""

    metric: str = Field(
        "ndcg_at_5",
        description="Metric that decides, such as precision_at_1, ndcg_at_5 or tail/recall_at_5. Rows with few labels "
        "cannot reach a precision of 1, but an nDCG of 1.",
    )
    margin: float = Field(
        0.0, ge=0, lt=1, description="How much better the challenger must be, in units of the metric."
    )
    confidence: float = Field(
        0.95,
        ge=0.5,
        lt=1,
        description="Share of the bootstrap resamples in which the challenger must be better by the margin. A "
        "higher share makes promotion rarer.",
    )
    n_bootstrap: int = Field(
        1000,
        ge=100,
        le=100_000,
        title="Bootstrap resamples",
        description="Number of bootstrap resamples of the held-out rows. More resamples give a steadier decision.",
    )
    split: Split = Field(
        "dev",
        description="Held-out split on which the two models are compared. dev: a tenth of the train rows is held out "
        "if the data has no dev rows. test: test rows then choose a model, so they no longer measure it fairly.",
    )
    if_not_comparable: Literal["keep", "promote"] = Field(
        "keep",
        description="What to do if the champion cannot be applied to the new held-out rows: keep the champion, "
        "or promote the challenger.",
    )

    @field_validator("metric")
    @classmethod
    def _is_known(cls, metric: str) -> str:
        try:
            find_metric(metric, paired_metrics())
        except ConfigError as error:
            raise ValueError(str(error)) from None
        return metric

    @property
    def k(self) -> int:
        """The rank of the metric; 1 for a metric without ranks."""
        return find_metric(self.metric, paired_metrics()).k or 1

    def used_modules(self) -> Iterable[str]:
        """A comparison shows all metrics, so all of them count."""
        return metric_modules()


class Verdict(NamedTuple):
    """The outcome of `compare`.

    Attributes
    ----------
    better : bool
        The challenger is better by the margin in at least the wanted share of resamples.
    share_above_margin : float
        That share, as found.
    table : pa.Table
        ``metric, champion, challenger, difference, low, high, share_better``; the metric that decides comes first.
    """

    better: bool
    share_above_margin: float
    table: pa.Table


def compare(
    challenger: TopK,
    champion: TopK,
    truth: CSR,
    promotion: Promotion,
    *,
    train_counts: Int64,
    n_train: int,
    rng: np.random.Generator,
) -> Verdict:
    """Compare two rankings of the same rows by a paired bootstrap.

    Parameters
    ----------
    challenger, champion : TopK (n, at least promotion.k)
    truth : CSR (n, L)
    train_counts, n_train
        Of the challenger's training rows, for propensities and thirds.

    Notes
    -----
    Where less is better, both rankings' values change their sign first.
    A margin m asks for ``sum(a - b) / sum(w) > m``, that is for ``sum(a - m w - b) > 0``, where w are the metric's
    denominators. Cost O(n n_bootstrap) per metric.
    """
    rows, share = [], 0.0
    for key in dict.fromkeys([promotion.metric, *_reported(truth, min(challenger.k, champion.k))]):
        new, weights = row_values(challenger, truth, key, train_counts=train_counts, n_train=n_train)
        old, _ = row_values(champion, truth, key, train_counts=train_counts, n_train=n_train)
        # Where less is better, the two change sides: the bootstrap asks how often the first is larger.
        sign = 1.0 if find_metric(key, paired_metrics()).metric.more_is_better else -1.0
        better = partial(paired_bootstrap, denominators=weights, n_bootstrap=promotion.n_bootstrap, rng=rng)
        found = better(sign * new, sign * old)
        if key == promotion.metric:
            share = better(sign * new - promotion.margin * weights, sign * old).share_better
        total = float(weights.sum()) or float("nan")
        interval = sorted(sign * end for end in found.interval)
        values = (old.sum() / total, new.sum() / total, sign * found.difference, *interval, found.share_better)
        rows.append({"metric": key} | dict(zip(NUMBERS, map(float, values), strict=True)))
    return Verdict(share >= promotion.confidence, share, pa.Table.from_pylist(rows, SCHEMA))


def _reported(truth: CSR, largest: int) -> list[str]:
    """The keys of all metrics that can be compared on these rows, at the usual ranks that both rankings hold."""
    ranks = [k for k in REPORTED_RANKS if k <= largest]
    return [key for metric in measurable(paired_metrics(), truth) for key in metric.ranks(ranks)]


def champion_ranking(champion: Scorer, dataset: Dataset, split: Split, k: int) -> TopK:
    """What the champion says of a newer dataset's rows, in that dataset's label numbers.

    Texts go through the champion's own vocabulary, as they do where it is in use. Labels are matched by id; a label
    that the newer dataset no longer has takes its place in the ranking as a miss, for that is what a user would get.

    Raises
    ------
    NotComparable
        The rows are of another form or feature space, or the two datasets share no label.
    """
    if champion.form != dataset.form:
        raise NotComparable(f"the champion takes {champion.form} rows, the new dataset has {dataset.form} rows")
    if dataset.form != "text" and champion.fitted.n_features != dataset.n_features:
        raise NotComparable(
            f"the champion was trained on {champion.fitted.n_features} features, the new dataset has "
            f"{dataset.n_features}, and nothing says which of them are the same"
        )
    numbers = label_numbers(champion.label_ids, dataset.label_table()["id"])
    if not (numbers != NO_LABEL).any():
        raise NotComparable(f"none of the champion's {len(numbers)} labels is among the new dataset's")
    top = split_ranking(champion, dataset, split, k)
    renamed = np.append(numbers, np.int32(NO_LABEL))[top.labels]  # NO_LABEL is -1: the last
    return TopK(renamed, top.scores)


def split_ranking(scorer: Scorer, dataset: Dataset, split: Split, k: int) -> TopK:
    """The k best labels of all rows of a split, in the numbers of the scorer's labels."""
    if dataset.form != "text":
        rows = dataset.images(split) if dataset.form == "image" else dataset.sparse(split)
        return scorer.fitted.predict_topk(rows, k)
    parts = [scorer.top(pa.record_batch({"text": texts}), k) for texts in dataset.text_blocks(split)]
    return TopK(np.concatenate([part.labels for part in parts]), np.concatenate([part.scores for part in parts]))


def label_numbers(ids: pa.ChunkedArray, new_ids: pa.ChunkedArray) -> npt.NDArray[np.int32]:
    """The new number of each label id, ``NO_LABEL`` where it is gone."""
    found = pc.fill_null(pc.index_in(ids, value_set=new_ids.combine_chunks()), NO_LABEL)
    numbers: npt.NDArray[np.int32] = found.to_numpy().astype(np.int32)
    return numbers


def fair_rows(champion_dataset: Dataset, dataset: Dataset, split: Split) -> npt.NDArray[np.bool_]:
    """Held-out rows that both models have trained on (as rows of the same content) or neither has.

    New data may move rows between train and test, so that an older champion knows the answers to a part of the new test
    rows. Rows are the same if all their features are. Cost O(bytes); memory 8 bytes per row.
    """
    held_out = _prints(dataset, split)
    known = [np.isin(held_out, _prints(trained_on, "train")) for trained_on in (champion_dataset, dataset)]
    fair: npt.NDArray[np.bool_] = known[0] == known[1]
    if not fair.any():
        raise NotComparable(f"one of the two models has trained on every row of the new {split} split")
    return fair


def _prints(dataset: Dataset, split: Split) -> npt.NDArray[np.uint64]:
    columns = COLUMNS[dataset.form]
    with pq.ParquetFile(dataset.directory / f"{split}.parquet") as file:
        found = [fingerprints(batch, columns) for batch in file.iter_batches(columns=columns)]
    return np.concatenate([np.zeros(0, np.uint64), *found])
