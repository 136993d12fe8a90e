"""Weights of the members of an ensemble, chosen on dev rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from xcore.numeric.matrices import CSR, NO_LABEL, Float64, Int32
from xcore.training.dev_choice import DEPTH, hits_of, ideal_gains, ndcg

SHARES = np.linspace(0, 1, 21)  # weights that are tried for one member, the others sharing the rest as before
ROUNDS = 5


def choose_weights(labels: list[Int32], scores: list[Float64], truth: CSR) -> tuple[Float64, float]:
    """Weights that sum to 1, and the nDCG@5 that they reach on these rows.

    Parameters
    ----------
    labels, scores : of each member, (n, k) each
        Candidates, and their scores on the common scale. The scores of a label that occurs twice are added up.
    truth : CSR (n, L)

    Notes
    -----
    Starts with equal weights, and changes one weight at a time for as long as that helps: a few hundred evaluations at
    most, each O(n u) for u candidates of all members together.
    """
    table, hits = _aligned(labels, scores, truth)
    ideal = ideal_gains(truth)

    def quality(weights: Float64) -> float:
        return _quality(np.einsum("m,mnu->nu", weights, table), hits, ideal)

    return _ascend(quality, np.full(len(table), 1 / len(table)))


def _ascend(quality: Callable[[Float64], float], weights: Float64) -> tuple[Float64, float]:
    best = quality(weights)
    for _ in range(ROUNDS):
        before = best
        for member in range(len(weights)):
            others = np.delete(weights, member)
            rest = others / others.sum() if others.sum() > 0 else np.full(len(others), 1 / max(len(others), 1))
            for share in SHARES if len(others) else ():
                tried = np.insert((1 - share) * rest, member, share)
                found = quality(tried)
                if found > best + 1e-9:
                    weights, best = tried, found
        if best == before:
            break
    return weights, best


def _aligned(labels: list[Int32], scores: list[Float64], truth: CSR) -> tuple[Float64, Float64]:
    """Scores (members, n, u) and hits (n, u) of the united candidates of each row, in the order of the labels."""
    offered = np.sort(np.concatenate(labels, axis=1), axis=1)
    offered[:, 1:][offered[:, 1:] == offered[:, :-1]] = NO_LABEL
    united = np.sort(offered, axis=1)
    table = np.zeros((len(labels), *united.shape))
    for own, label, score in zip(table, labels, scores, strict=True):
        # The place of a label: rows are told apart by adding a number that is larger than all labels.
        step = np.arange(len(label), dtype=np.int64)[:, None] * (truth.shape[1] + 1)
        places = np.searchsorted((united + step).ravel(), (label + step).ravel())
        kept = label.ravel() != NO_LABEL
        np.add.at(own.reshape(-1), places[kept], score.ravel()[kept])  # a label may be offered by several copies
    return table, hits_of(united, truth)


def _quality(scores: Float64, hits: Float64, ideal: Float64) -> float:
    depth = min(DEPTH, scores.shape[1])
    places = np.argsort(-scores, axis=1, kind="stable")[:, :depth]
    return ndcg(np.take_along_axis(hits, places, axis=1), ideal)
