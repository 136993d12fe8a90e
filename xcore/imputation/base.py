"""The whole interface of an imputer, and how good its result is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from xcore.components import Component, Report, silent
from xcore.errors import ConfigError
from xcore.grouping.groups import Groups
from xcore.imputation.imputed import Imputed
from xcore.numeric.matrices import CSR, Float32, Float64, Int32, Int64, binary_csr, csr, normalise_rows

_ZERO = 1e-12  # a sum of unit rows that is shorter, per row, has no direction


class Imputer(Component):
    """Base of the ways to give the labels of groups to their members."""

    def impute(self, X: CSR, groups: Groups, rng: np.random.Generator, report: Report = silent) -> Imputed:
        """Labels for the rows of X (CSR float32, n x d) from their groups.

        Promises of every imputer: a row gets only labels of its groups; a row in no group, a label in no group and a
        group without members get nothing; the only member of a group gets all of the group's labels, and no other: its
        labels are known, and other groups of the row are left to their other members (`Groups.without_known_rows`).
        The same input and generator state give the same bits for any number of threads.
        """
        return self._checked(X, groups, lambda unknown: self._impute(X, unknown, rng, report))

    def impute_each(self, X: CSR, groups: Groups, rng: np.random.Generator) -> list[tuple[Imputer, Imputed]]:
        """The results of this imputer by each of the settings that it leaves open, from one run."""
        return [(self, self.impute(X, groups, rng))]

    def _checked(self, X: CSR, groups: Groups, impute: Callable[[Groups], Imputed]) -> Imputed:
        """What `impute` gives for checked input, with what every imputer says."""
        _check_input(X, groups)
        imputed = impute(groups.without_known_rows())
        zero_rows = int((np.bincount(row_ids(X)[X.data != 0], minlength=X.shape[0]) == 0).sum())
        counts = {"rows_without_features": zero_rows, **imputed.counts()}
        details = {"imputer": self.options(), "counts": counts, **imputed.details}
        return replace(imputed, details=details)

    def label_embeddings(self, X: CSR, groups: Groups, rng: np.random.Generator, report: Report = silent) -> Float32:
        """One unit vector per label, float32 (L, d), in the space of the rows; 0 for a label in no group.

        It points from the mean row to the rows that carry the label, as far as the imputer can tell. `Eagle` has an
        algorithm for it; for the others it lies along the sum of the imputed rows, each with its confidence as weight.
        """
        _check_input(X, groups)
        return self._label_embeddings(X, groups, rng, report)

    def _label_embeddings(self, X: CSR, groups: Groups, rng: np.random.Generator, report: Report) -> Float32:
        carriers, rows = self._impute(X, groups, rng, report).Y.T.tocsr(), normalise_rows(X)
        mass = np.asarray(carriers.sum(axis=1), np.float64).reshape(-1, 1)
        total = (carriers @ rows).toarray().astype(np.float64) - mass * column_means(rows)
        length = np.sqrt(np.square(total).sum(axis=1, keepdims=True))
        known = length > _ZERO * np.maximum(mass, 1.0)
        vectors: Float32 = np.divide(total, length, out=np.zeros_like(total), where=known).astype(np.float32)
        return vectors

    def _impute(self, X: CSR, groups: Groups, rng: np.random.Generator, report: Report) -> Imputed:
        raise TypeError(f"{type(self).__name__} has no way to impute")


def _check_input(X: CSR, groups: Groups) -> None:
    if X.shape[0] != groups.n_rows:
        raise ConfigError(f"features have {X.shape[0]} rows but the groups are over {groups.n_rows}: they must match")
    if X.nnz and not np.isfinite(X.data).all():
        raise ConfigError("features hold NaN or infinite values; impute from finite features")


SMALLER_GROUPS = "Use smaller groups, fewer rows or fewer labels."


class Pairs(NamedTuple):
    """All (group, label) pairs of groups with members, label by label, in the form that numba accepts.

    Pair p belongs to group ``group[p]``, and to label k where ``of_label[k] <= p < of_label[k + 1]``. The members of
    its group are ``members[first[p] : first[p] + size[p]]``, in ascending order; ``carriers[p]`` of them carry k.
    """

    of_label: Int64
    group: Int64
    first: Int64
    size: Int64
    carriers: Int64
    members: Int32

    @classmethod
    def of(cls, groups: Groups) -> Pairs:
        sizes = groups.sizes
        group = row_ids(groups.labels)
        kept = np.flatnonzero(sizes[group] > 0)
        kept = kept[np.argsort(groups.labels.indices[kept], kind="stable")]
        per_label = np.bincount(groups.labels.indices[kept], minlength=groups.n_labels)
        group = group[kept]
        return cls(
            np.concatenate([[0], np.cumsum(per_label)]),
            group,
            groups.members.indptr[group].astype(np.int64),
            sizes[group],
            np.minimum(groups.labels.data[kept].astype(np.int64), sizes[group]),
            np.ascontiguousarray(groups.members.indices, np.int32),
        )

    @property
    def n_labels(self) -> int:
        return len(self.of_label) - 1

    def candidates(self) -> Int64:
        """Offsets (pairs + 1) of each pair's members when all are written one after the other."""
        return np.concatenate([[0], np.cumsum(self.size)])

    def label_of_pair(self) -> Int64:
        return np.repeat(np.arange(self.n_labels), np.diff(self.of_label))


def rows_by_group(X: CSR, groups: Groups) -> tuple[CSR, Groups, Int64]:
    """The same with rows in the order of their (first) groups, and each row's original place.

    Imputers read members group by group, again and again: side by side in memory they come twice as fast.
    """
    members, first = np.unique(groups.members.indices, return_index=True)
    grouped = members[np.argsort(first, kind="stable")]
    original = np.concatenate([grouped, np.setdiff1d(np.arange(groups.n_rows), members)]).astype(np.int64)
    place = np.empty(groups.n_rows, np.int64)
    place[original] = np.arange(groups.n_rows)
    renamed = binary_csr(place[groups.members.indices], groups.members.indptr, groups.n_rows)
    return X[original], replace(groups, members=renamed), original


def row_ids(matrix: CSR) -> Int64:
    """The row of every stored entry."""
    ids: Int64 = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    return ids


def rows_and_labels(
    rows: npt.NDArray[np.integer], labels: npt.NDArray[np.integer], confidence: npt.NDArray[Any], shape: tuple[int, int]
) -> CSR:
    """CSR of imputed positives; where overlapping groups agree on one, the greater confidence counts."""
    order = np.lexsort((-confidence, labels, rows))
    rows, labels, confidence = rows[order], labels[order], confidence[order]
    new = np.ones(len(rows), bool)
    new[1:] = (rows[1:] != rows[:-1]) | (labels[1:] != labels[:-1])
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows[new], minlength=shape[0]))])
    return csr(confidence[new], labels[new], indptr, shape[1])


def quality_against_truth(imputed: Imputed, truth: CSR, n_bins: int = 10) -> dict[str, float]:
    """How far an imputation can be trusted, where the true labels (CSR n x L) are known.

    Returns
    -------
    precision, recall : shares of the imputed positives that are true, and of the true ones that were imputed.
    expected_recall : confidence mass on true positives, as a share of them.
    calibration_error : mean over positives of \\|confidence - share of true ones\\| in `n_bins` bins of equal width.
    """
    true = binary_csr(truth.indices, truth.indptr, truth.shape[1])
    claimed = binary_csr(imputed.Y.indices, imputed.Y.indptr, truth.shape[1])
    hits = imputed.Y.multiply(true).tocsr()
    n_hits, n_claimed, n_true = hits.nnz, claimed.nnz, true.nnz
    bins = np.minimum((imputed.Y.data * n_bins).astype(np.int64), n_bins - 1)
    hit_bins = np.minimum((hits.data * n_bins).astype(np.int64), n_bins - 1)
    gap = np.bincount(bins, imputed.Y.data, n_bins) - np.bincount(hit_bins, minlength=n_bins)
    return {
        "precision": n_hits / n_claimed if n_claimed else 0.0,
        "recall": n_hits / n_true if n_true else 0.0,
        "expected_recall": float(hits.data.sum(dtype=np.float64)) / n_true if n_true else 0.0,
        "calibration_error": float(np.abs(gap).sum()) / n_claimed if n_claimed else 0.0,
    }


def column_means(X: CSR) -> Float64:
    """Mean row (d,)."""
    means: Float64 = np.bincount(X.indices, X.data, X.shape[1]) / max(X.shape[0], 1)
    return means
