"""Shortlists of SiameseXML become rankings as written: both scores of a candidate, mixed by alpha."""

from __future__ import annotations

import numpy as np

from xcore.models.siamesexml.ranking import measured, union_of
from xcore.numeric.matrices import NO_LABEL, Float32
from xcore.siamese.index import LabelIndex

D, N_LABELS = 16, 5


def unit(n: int, seed: int) -> Float32:
    rows = np.random.default_rng(seed).normal(size=(n, D))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def test_labels_of_both_searches_stand_once_in_a_shortlist() -> None:
    found = [np.array([[3, 1, NO_LABEL], [2, 0, 4]], np.int32), np.array([[1, 0], [NO_LABEL, 2]], np.int32)]
    nothing = NO_LABEL
    assert union_of(found).tolist() == [[0, 1, 3, nothing, nothing], [0, 2, 4, nothing, nothing]]


def test_a_candidate_has_its_classifier_and_the_mean_of_the_similarities_that_there_are() -> None:
    rows, final, weights, names, centroids = (
        unit(3, 0), unit(3, 1), unit(N_LABELS, 2), unit(N_LABELS, 3), unit(N_LABELS, 4),
    )  # fmt: skip
    with_centroid = np.array([0, 2], np.int32)
    labels = np.array([[0, 1, 2], [1, 4, NO_LABEL], [2, 3, 4]], np.int32)
    by_name = LabelIndex.build(names, np.arange(N_LABELS, dtype=np.int32), 100)
    by_centroid = LabelIndex.build(centroids, with_centroid, 100)
    found = measured(labels, rows, final, weights, by_name, by_centroid)
    for row, own in enumerate(labels.tolist()):
        for at, label in enumerate(own):
            if label == NO_LABEL:
                continue
            near = [rows[row] @ names[label]]
            near += [rows[row] @ centroids[label]] if label in with_centroid else []
            np.testing.assert_allclose(found.classified[row, at], final[row] @ weights[label], atol=1e-5)
            np.testing.assert_allclose(found.similar[row, at], np.mean(near), atol=1e-5)
    for alpha in (0.0, 0.3, 1.0):
        top = found.ranked(alpha, 2)
        mixed = alpha * found.classified + (1 - alpha) * found.similar
        mixed[labels == NO_LABEL] = -np.inf
        order = np.argsort(-mixed, axis=1)[:, :2]
        np.testing.assert_array_equal(top.labels, np.take_along_axis(labels, order, axis=1))
        np.testing.assert_allclose(top.scores, np.take_along_axis(mixed, order, axis=1), atol=1e-6)
