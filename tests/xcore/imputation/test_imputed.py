from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from xcore.grouping.groups import Groups
from xcore.imputation.base import Pairs, quality_against_truth, rows_and_labels
from xcore.imputation.baseline import Baseline
from xcore.imputation.imputed import Imputed, TargetOptions
from xcore.numeric.matrices import CSR, csr


def as_csr(dense: object) -> CSR:
    matrix = sp.csr_array(np.asarray(dense, np.float32))
    return csr(matrix.data, matrix.indices, matrix.indptr, matrix.shape[1])


def test_a_saved_imputation_comes_back_as_it_was(tmp_path: Path) -> None:
    details = {"reason": "because", "numbers": [1, 2]}
    imputed = Imputed(as_csr([[0, 0.5, 1], [0, 0, 0], [0.25, 0, 0]]), details, reading="target")
    imputed.save(tmp_path)
    read = Imputed.load(tmp_path)
    assert read.reading == "target"
    np.testing.assert_array_equal(read.Y.toarray(), imputed.Y.toarray())
    assert read.details == imputed.details


def test_positives_can_be_cut_by_confidence_and_weighted_or_not() -> None:
    imputed = Imputed(as_csr([[0, 0.5, 1], [0, 0, 0], [0.25, 0, 0]]))
    assert imputed.positives(at_least=0.5).toarray().tolist() == [[0, 0.5, 1], [0, 0, 0], [0, 0, 0]]
    assert imputed.positives(weighted=False).toarray().tolist() == [[0, 1, 1], [0, 0, 0], [1, 0, 0]]
    assert imputed.counts() == {"imputed_positives": 3, "rows_without_labels": 1, "labels_without_rows": 0}


def test_targets_drop_doubted_labels_and_say_how_confidences_are_read() -> None:
    imputed = Imputed(as_csr([[0, 0.5, 1], [0.25, 0, 0]]), reading="target")
    kept = imputed.targets(TargetOptions(min_confidence=0.4))
    assert (kept.Y.toarray().tolist(), kept.reading) == ([[0, 0.5, 1], [0, 0, 0]], "target")
    weighted = imputed.targets(TargetOptions(confidence="weight"))
    assert (weighted.Y.toarray().tolist(), weighted.reading) == ([[0, 0.5, 1], [0.25, 0, 0]], "weight")
    certain = imputed.targets(TargetOptions(confidence="ignore"))
    assert certain.Y.toarray().tolist() == [[0, 1, 1], [1, 0, 0]]


def test_quality_against_the_truth_is_what_one_counts_by_hand() -> None:
    imputed = Imputed(as_csr([[0.95, 0.25], [0.25, 0], [0.25, 0.25]]))
    truth = as_csr([[1, 0], [0, 1], [1, 0]])
    quality = quality_against_truth(imputed, truth)
    assert quality == pytest.approx(
        {
            "precision": 2 / 5,
            "recall": 2 / 3,
            "expected_recall": (0.95 + 0.25) / 3,
            "calibration_error": (0.05 + abs(4 * 0.25 - 1)) / 5,
        },
        abs=1e-6,
    )


def test_where_groups_overlap_the_greater_confidence_counts() -> None:
    Y = rows_and_labels(np.array([1, 0, 1]), np.array([2, 0, 2]), np.array([0.2, 1.0, 0.7]), (2, 3))
    np.testing.assert_allclose(Y.toarray(), [[1, 0, 0], [0, 0, 0.7]], rtol=1e-6)


def test_pairs_go_label_by_label_skip_empty_groups_and_cap_counts_at_the_size() -> None:
    groups = Groups(as_csr([[1, 0, 1], [0, 0, 0], [0, 1, 0]]), as_csr([[5, 1], [1, 1], [0, 1]]))
    pairs = Pairs.of(groups)
    assert pairs.of_label.tolist() == [0, 1, 3]
    assert pairs.group.tolist() == [0, 0, 2]
    assert pairs.carriers.tolist() == [2, 1, 1]
    assert [pairs.members[a : a + b].tolist() for a, b in zip(pairs.first, pairs.size, strict=True)] == [
        [0, 2],
        [0, 2],
        [1],
    ]


def test_the_baseline_gives_every_member_the_share_of_members_that_carry_the_label() -> None:
    groups = Groups(as_csr([[1, 1, 1, 1, 0], [0, 0, 0, 1, 1]]), as_csr([[1, 4], [1, 0]]))
    Y = Baseline().impute(as_csr(np.ones((5, 1))), groups, np.random.default_rng(0)).Y
    assert Y.toarray().tolist() == [[0.25, 1]] * 3 + [[0.5, 1], [0.5, 0]]


def test_confidences_that_are_too_high_here_and_too_low_there_do_not_cancel() -> None:
    imputed = Imputed(as_csr([[0.9, 0.1], [0.9, 0.1]]))
    quality = quality_against_truth(imputed, as_csr([[0, 1], [0, 1]]))
    assert quality["calibration_error"] == pytest.approx(0.9, abs=1e-6)


def test_the_published_baseline_takes_every_label_of_a_group_for_certain() -> None:
    groups = Groups(as_csr([[1, 1, 1, 1, 0], [0, 0, 0, 1, 1]]), as_csr([[1, 4], [1, 0]]))
    Y = Baseline(weight="one").impute(as_csr(np.ones((5, 1))), groups, np.random.default_rng(0)).Y
    assert Y.toarray().tolist() == [[1, 1]] * 4 + [[1, 0]]
