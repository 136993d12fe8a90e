"""Training of the cascade of heads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, linear, log_softmax, logsigmoid, pad

from xcore.heads.cascade import FittedCascade, Further, MultiHeadCascade
from xcore.heads.codec import LabelCodec
from xcore.heads.fitting.base import Targets, TorchHead, array_of, log_odds, log_shares, on, weights
from xcore.heads.fitting.grouped import grouped_products
from xcore.numeric.matrices import Float32, Int64
from xcore.training.shards import Lookup

TABLE_SPREAD = 0.02  # of the first vectors of prefixes


class CascadeModule(TorchHead):
    """The first head, and a bottleneck and a table of prefixes for each further head."""

    def __init__(
        self, options: MultiHeadCascade, codec: LabelCodec, dimensions: int, shares: Float32, seed: int
    ) -> None:
        super().__init__()
        self.options, self.codec = options, codec
        self.is_logistic = options.loss == "logistic"
        length, n_groups = options.bottleneck, codec.n_prefixes(1)
        groups = np.zeros(n_groups)
        np.add.at(groups, codec.prefixes(np.arange(codec.n_classes), 1), shares)
        self.weights = weights((n_groups, dimensions), seed)
        self.biases = log_odds(np.minimum(groups, 1.0)) if self.is_logistic else log_shares(groups)
        further = range(2, len(codec.lengths) + 1)
        self.narrow = torch.nn.ParameterList([weights((length, dimensions), seed + h) for h in further])
        self.narrow_biases = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(length)) for _ in further])
        for h in further:
            generator = torch.Generator().manual_seed(seed + len(codec.lengths) + h)
            table = torch.randn((codec.n_prefixes(h), length), generator=generator)
            self.tables[f"head.{h}"] = table.mul_(TABLE_SPREAD)

    def loss(self, x: torch.Tensor, targets: Targets, lookup: Lookup, generator: torch.Generator) -> torch.Tensor:
        """The sum over the heads of the mean loss of each row's candidates."""
        scores = linear(x, self.weights, self.biases)
        wanted = Prefixes.of(self.codec, targets, 1)
        if not self.is_logistic:
            return self._softmax_loss(x, scores, targets, lookup)
        dense = np.zeros(scores.shape, np.float32)
        dense[wanted.rows, wanted.prefixes] = wanted.values
        total = binary_cross_entropy_with_logits(scores, on(x, dense), reduction="sum") / scores.shape[1]
        if len(self.codec.lengths) == 1:
            return total
        pairs = self._groups(scores.detach(), wanted)
        logs = logsigmoid(scores.detach())[on(x, pairs.rows), on(x, pairs.prefixes)]
        for n_digits in range(2, len(self.codec.lengths) + 1):
            children, is_child = self._children(x, pairs, n_digits, lookup)
            wanted = Prefixes.of(self.codec, targets, n_digits)
            losses = binary_cross_entropy_with_logits(children, on(x, pairs.dense(wanted, children)), reduction="none")
            n_pairs = np.bincount(pairs.rows, minlength=len(x))
            shares = on(x, (1 / (n_pairs[pairs.rows] * children.shape[1])).astype(np.float32))
            total = total + ((losses * is_child).sum(dim=1) * shares).sum()
            if n_digits < len(self.codec.lengths):
                sums = (logs[:, None] + logsigmoid(children.detach())).masked_fill(~is_child, -np.inf)
                pairs, logs = self._best_children(sums, pairs, wanted)
        return total

    def _groups(self, scores: torch.Tensor, wanted: Prefixes) -> Prefixes:
        """The groups that each row looks into: its own, and the best of the others."""
        boosted = scores.clone()
        boosted[on(scores, wanted.rows), on(scores, wanted.prefixes)] = np.inf
        n_kept = min(self.options.candidates, scores.shape[1])
        best = boosted.topk(n_kept, dim=1).indices.cpu().numpy()
        rows = np.repeat(np.arange(len(scores)), n_kept)
        return Prefixes.united(wanted, rows, best.reshape(-1))

    def _best_children(self, sums: torch.Tensor, pairs: Prefixes, wanted: Prefixes) -> tuple[Prefixes, torch.Tensor]:
        """The prefixes with one more digit that each row looks into, and the logarithms of their probabilities."""
        length = sums.shape[1]
        flat = sums.reshape(-1).cpu().numpy()
        rows = np.repeat(pairs.rows, length)
        prefixes = (pairs.prefixes[:, None] * length + np.arange(length)).reshape(-1)
        order = np.lexsort((-flat, rows))
        starts = np.searchsorted(rows, np.arange(pairs.n_rows))  # rows ascend, before and after the sorting
        place = np.arange(len(order)) - starts[rows[order]]
        kept = order[(place < self.options.candidates) & np.isfinite(flat[order])]
        found = Prefixes.united(wanted, rows[kept], prefixes[kept])
        before = np.searchsorted(pairs.keys(), found.keys(length))
        return found, sums[on(sums, before), on(sums, found.prefixes % length)]

    def _children(
        self, x: torch.Tensor, pairs: Prefixes, n_digits: int, lookup: Lookup
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits of the children of each pair's prefix (m, a), and which of them are there."""
        length, n_rows = self.codec.lengths[n_digits - 1], self.codec.n_prefixes(n_digits)
        used, place = np.unique(pairs.prefixes, return_inverse=True)
        children = (used[:, None] * length + np.arange(length)).reshape(-1)
        table = lookup(f"head.{n_digits}", children[children < n_rows])
        if len(table) < len(children):  # the last group is short
            table = pad(table, (0, 0, 0, len(children) - len(table)))
        table = table.view(len(used), length, self.options.bottleneck)
        own = linear(x, self.narrow[n_digits - 2], self.narrow_biases[n_digits - 2])
        logits = grouped_products(own, table, pairs.rows, place)
        return logits, on(x, (pairs.prefixes[:, None] * length + np.arange(length)) < n_rows)

    def _softmax_loss(self, x: torch.Tensor, scores: torch.Tensor, targets: Targets, lookup: Lookup) -> torch.Tensor:
        """Cross-entropy of each digit given the true digits before it."""
        values, rows = on(x, targets.values), on(x, targets.rows)
        groups = on(x, self.codec.prefixes(targets.classes, 1))
        total = -(values * log_softmax(scores, dim=1)[rows, groups]).sum()
        for n_digits in range(2, len(self.codec.lengths) + 1):
            before = self.codec.prefixes(targets.classes, n_digits - 1)
            pairs = Prefixes(targets.n_rows, targets.rows, before, targets.values)
            logits, is_child = self._children(x, pairs, n_digits, lookup)
            logs = log_softmax(logits.masked_fill(~is_child, -np.inf), dim=1)
            digit = self.codec.digits(targets.classes)[:, n_digits - 1]
            total = total - (values * logs.gather(1, on(x, digit[:, None]))[:, 0]).sum()
        return total

    def fitted(self) -> FittedCascade:
        further = [
            Further(array_of(weight), array_of(bias), array_of(self.tables[f"head.{h}"]))
            for h, (weight, bias) in enumerate(zip(self.narrow, self.narrow_biases, strict=True), 2)
        ]
        first = array_of(self.weights), array_of(self.biases)
        return FittedCascade(self.codec, self.options.candidates, *first, tuple(further), self.is_logistic)


@dataclass(frozen=True)
class Prefixes:
    """Pairs of a row and a prefix of some digits, ascending by row and prefix.

    Attributes
    ----------
    n_rows : int
    rows, prefixes : int64 (m,)
    values : float32 (m,)
        Chance that a class of the row begins so.
    """

    n_rows: int
    rows: Int64
    prefixes: Int64
    values: Float32

    @classmethod
    def of(cls, codec: LabelCodec, targets: Targets, n_digits: int) -> Prefixes:
        """The prefixes of each row's classes: the chance of a prefix is that of at least one of its classes."""
        prefixes = codec.prefixes(targets.classes, n_digits)
        first = np.ones(len(prefixes), np.bool_)
        first[1:] = (prefixes[1:] != prefixes[:-1]) | (targets.rows[1:] != targets.rows[:-1])
        starts = np.flatnonzero(first)
        misses = np.multiply.reduceat(1 - targets.values, starts) if len(starts) else np.zeros(0)
        return cls(targets.n_rows, targets.rows[starts], prefixes[starts], (1 - misses).astype(np.float32))

    @classmethod
    def united(cls, wanted: Prefixes, rows: Int64, prefixes: Int64) -> Prefixes:
        """The wanted pairs and some others; `values` are of no use here."""
        n = int(max(prefixes.max(initial=0), wanted.prefixes.max(initial=0))) + 1
        keys = np.union1d(wanted.rows * n + wanted.prefixes, rows * n + prefixes)
        return cls(wanted.n_rows, keys // n, keys % n, np.zeros(len(keys), np.float32))

    def keys(self, length: int = 1) -> Int64:
        """One ascending number per pair, by row and the prefix without its last digit of `length` values."""
        return self.rows * 2**40 + self.prefixes // length

    def dense(self, wanted: Prefixes, children: torch.Tensor) -> Float32:
        """Targets of the children of these pairs, float32 (m, a); `wanted` has one digit more."""
        found = np.zeros(children.shape, np.float32)
        place = np.searchsorted(self.keys(), wanted.keys(children.shape[1]))
        found[place, wanted.prefixes % children.shape[1]] = wanted.values
        return found
