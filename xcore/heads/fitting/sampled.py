"""Training of the head of sampled groups."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch.nn.functional import log_softmax, normalize, pad

from xcore.heads.codec import LabelCodec
from xcore.heads.fitting.base import NARROWER, SMALLEST_SHARE, Targets, TorchHead, array_of, on
from xcore.heads.sampled import FittedSampled, MultiHeadSampling, unit_rows
from xcore.memory import TRAINED, need_array
from xcore.numeric.matrices import Float32, Int64
from xcore.training.shards import Lookup

SPREAD = 0.01  # of the first weights
TABLE = "head.classes"


class SampledModule(TorchHead):
    """A table with the weights of each class, of which a step looks at some groups."""

    def __init__(
        self, options: MultiHeadSampling, codec: LabelCodec, dimensions: int, shares: Float32, seed: int
    ) -> None:
        super().__init__()
        self.options, self.codec = options, codec
        self.group_shares = np.zeros(codec.n_prefixes(1))
        np.add.at(self.group_shares, codec.prefixes(np.arange(codec.n_classes), 1), shares)
        shape = (codec.n_classes, dimensions)
        need_array(shape, "the table of classes in training", NARROWER, entry_bytes=TRAINED)
        generator = torch.Generator().manual_seed(seed)
        self.tables[TABLE] = torch.randn(shape, generator=generator).mul_(SPREAD)

    def loss(self, x: torch.Tensor, targets: Targets, lookup: Lookup, generator: torch.Generator) -> torch.Tensor:
        """Cross-entropy of a softmax over the chosen groups."""
        n_groups = self.codec.n_prefixes(1)
        if self.options.groups and self.options.groups < n_groups:
            logits, places = self._own_groups(x, targets, lookup, generator)
        else:
            is_all = self.options.groups > 0
            used = np.arange(n_groups) if is_all else np.unique(self.codec.prefixes(targets.classes, 1))
            logits, places = self._shared_groups(x, targets, used, lookup)
        rows = on(x, targets.rows)
        logits = self._with_margin(logits, rows, places)
        if not self.options.groups:
            logits = logits - on(x, self._log_chances(used, targets.n_rows))
        return -(on(x, targets.values) * log_softmax(logits, dim=1)[rows, places]).sum()

    def _shared_groups(
        self, x: torch.Tensor, targets: Targets, used: Int64, lookup: Lookup
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits of the classes of some groups, for all rows, and the places of the targets among them."""
        table = lookup(TABLE, self._classes(used))
        groups = self.codec.prefixes(targets.classes, 1)
        places = np.searchsorted(used, groups) * self.codec.lengths[1] + targets.classes % self.codec.lengths[1]
        if self.options.margin:
            return normalize(x) @ normalize(table).T, on(x, places)
        return x @ table.T, on(x, places)

    def _log_chances(self, groups: Int64, n_rows: int) -> Float32:
        """Logarithms of the chance that each class of some groups is in the softmax of a batch.

        Frequent classes are in it more often. Without this, a rare class would be compared with few rows that are not
        its own, and score too high against all classes (Bengio and Senecal, 2008).
        """
        none = np.log1p(-np.clip(self.group_shares[groups], SMALLEST_SHARE, 1 - SMALLEST_SHARE)) * n_rows
        return np.repeat(np.log(-np.expm1(none)), self.codec.lengths[1])[: len(self._classes(groups))].astype(
            np.float32
        )

    def _own_groups(
        self, x: torch.Tensor, targets: Targets, lookup: Lookup, generator: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits of the classes of each row's own groups and of others at random, and the places of the targets."""
        length, groups = self.codec.lengths[1], self.codec.prefixes(targets.classes, 1)
        draws = torch.rand((len(x), self.codec.n_prefixes(1)), generator=generator, device=x.device)
        draws[on(x, targets.rows), on(x, groups)] = 2.0
        n_own = int((draws == 2).sum(dim=1).max())
        chosen = draws.topk(max(self.options.groups, n_own), dim=1).indices.sort(dim=1).values.cpu().numpy()
        used, place = np.unique(chosen, return_inverse=True)
        table = lookup(TABLE, self._classes(used))
        table = pad(table, (0, 0, 0, len(used) * length - len(table)))  # the last group may be short
        if self.options.margin:
            x, table = normalize(x), normalize(table)
        own = table.view(len(used), length, -1)[on(x, place.reshape(chosen.shape))]
        logits = torch.einsum("nsad,nd->nsa", own, x)
        is_class = on(x, chosen[:, :, None] * length + np.arange(length) < self.codec.n_classes)
        logits = logits.masked_fill(~is_class, -np.inf).flatten(1)
        slot = (chosen[targets.rows] < groups[:, None]).sum(axis=1)
        return logits, on(x, slot * length + targets.classes % length)

    def _classes(self, groups: Int64) -> Int64:
        """The classes of some groups, ascending."""
        length = self.codec.lengths[1]
        found = (groups[:, None] * length + np.arange(length)).reshape(-1)
        return found[found < self.codec.n_classes]

    def _with_margin(self, cosines: torch.Tensor, rows: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """ArcFace: the angle to the right class counts as larger by the margin."""
        margin = self.options.margin
        if not margin:
            return cosines
        own = cosines[rows, places].clamp(-1 + 1e-6, 1 - 1e-6)
        turned = own * math.cos(margin) - (1 - own * own).sqrt() * math.sin(margin)
        harder = torch.where(own > math.cos(math.pi - margin), turned, own - margin * math.sin(math.pi - margin))
        return cosines.index_put((rows, places), harder) * self.options.scale

    def fitted(self) -> FittedSampled:
        table, has_cosines = array_of(self.tables[TABLE]), self.options.margin > 0
        return FittedSampled(unit_rows(table) if has_cosines else table, has_cosines, self.options.scale)
