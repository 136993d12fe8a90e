"""What chooses between settings on dev rows is the metric that the evaluation shows."""

from __future__ import annotations

import numpy as np
import pytest

from xcore.metrics import evaluate
from xcore.numeric.matrices import TopK, binary_csr
from xcore.training import dev_choice


def test_dev_rows_are_judged_by_the_precision_and_ndcg_of_the_evaluation() -> None:
    rng = np.random.default_rng(0)
    labels = np.argsort(rng.random((50, 12)), axis=1)[:, :5].astype(np.int32)
    labels[3, 2:] = -1
    true = [np.sort(rng.choice(12, size, replace=False)) for size in rng.integers(1, 8, 50)]
    truth = binary_csr(np.concatenate(true), np.cumsum([0, *map(len, true)]), 12)
    top = TopK(labels, -np.tile(np.arange(5, dtype=np.float32), (50, 1)))
    counts = np.ones(12, np.int64)
    shown = evaluate(top, truth, ks=(1, 5), train_counts=counts, n_train=12, n_bootstrap=0, rng=rng).metrics
    hits = dev_choice.hits_of(labels, truth)
    assert hits[:, 0].mean() == pytest.approx(shown["precision_at_1"])
    assert dev_choice.ndcg(hits, dev_choice.ideal_gains(truth)) == pytest.approx(shown["ndcg_at_5"])
