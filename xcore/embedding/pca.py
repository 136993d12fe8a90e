"""Principal components of dense or sparse features, fitted and applied in blocks of rows.

With mean m, covariance S = V diag(l) V' and the k largest eigenvalues, a row becomes ``(x - m) V_k``, or, whitened,
``(x - m) V_k diag(l_k)^(-1/2)``, whose covariance is the identity. Dense features are scaled to unit variance first, so
that S is their correlation. Sparse ones are not: that would weigh the rarest terms most. Sparse rows are scaled to
length 1 first, so that long rows do not outweigh short ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

import numpy as np
import scipy.sparse as sp
from pydantic import Field

from xcore.components import Report, silent
from xcore.embedding.base import BlocksOf, Embedding
from xcore.errors import ConfigError
from xcore.memory import need_array
from xcore.numeric.arrays import write_arrays
from xcore.numeric.checks import ArrayFile
from xcore.numeric.matrices import Float32, Float64, normalise_rows, row_blocks
from xcore.numeric.parallel import over_blocks, single_threaded_blas
from xcore.numeric.products import add_gram, product_of_rows
from xcore.saved import Count, Described, read_json
from xcore.training.context import FitContext
from xcore.training.data import TrainingData

Rows: TypeAlias = Any  # a block of rows: CSR, or a dense array (n, d)

GRAM_ROWS = 2048  # rows made dense at a time
THREAD_ROWS, THREAD_COLUMNS = 512, 1024  # of a sparse block that a thread takes at a time
SMALLEST_VARIANCE = 1e-7  # of the largest: directions below are rounding errors, and become zeros
CHANCE = 1.25
FEWER_FEATURES = "Set dimensions lower, or use fewer features, such as a smaller text.max_features."


class Pca(Embedding):
    """Principal components.

    Notes
    -----
    Up to `exact_features` inputs, the d x d covariance is added up in one pass and decomposed: O(n d^2 + d^3). Beyond,
    a random basis of l = dimensions + oversampling vectors is multiplied by the covariance and made orthonormal
    `passes` times (Halko, Martinsson and Tropp, 2011, algorithm 4.4 on the covariance): O(passes (nnz l + d l^2)) time,
    16 d l bytes. No n x d matrix is ever dense. Bits do not depend on threads; the cut into blocks, which is the
    caller's, may change the last bits.

    Standardised inputs that are uncorrelated, as the components of another PCA are, have no direction that stands out:
    the first `dimensions` of them are kept, in their order, since a PCA puts the most important first.
    """

    kind: Literal["pca"] = "pca"
    dimensions: int = Field(
        512,
        ge=1,
        description="Number of components to keep, at most the number of features. More components keep more "
        "information and cost more time and memory.",
    )
    whiten: bool = Field(
        False,
        description="Scale each component to variance 1. Components of little variance, which are mostly noise, then "
        "count as much as the first ones.",
    )
    normalise: bool = Field(
        True, description="Scale each sparse row to length 1 first. Dense rows are taken as they are."
    )
    standardise: Literal["auto", "always", "never"] = Field(
        "auto", description="Scale each input feature to variance 1 first. auto: only if the features are dense."
    )
    exact_features: int = Field(
        1024,
        ge=1,
        description="Largest number of features for the exact decomposition. With more features, a faster "
        "randomised method is used.",
    )
    oversampling: int = Field(
        16, ge=0, description="Extra vectors of the randomised method. More vectors are more accurate and slower."
    )
    passes: int = Field(
        4, ge=1, description="Passes over the rows in the randomised method. More passes are more accurate and slower."
    )

    def fit(self, data: TrainingData, context: FitContext) -> FittedPca:
        """Find the components of the training rows, which are read block by block."""
        return self.fit_blocks(BlocksOf(data.rows), context.rng, context.report)

    @classmethod
    def load(cls, directory: Path) -> FittedPca:
        """Open what `FittedPca.save` wrote."""
        return FittedPca.load(directory)

    def fit_blocks(self, blocks: Iterable[Rows], rng: np.random.Generator, report: Report = silent) -> FittedPca:
        """Find the components of rows that come in blocks (CSR, or dense (n, d)).

        `blocks` must be iterable again and again: a list, or an object that opens its file anew. `rng` draws the random
        basis, if there is one.
        """
        if isinstance(blocks, Iterator):
            raise ConfigError("blocks of rows are read several times: give a list or another iterable, not an iterator")
        blocks = _UnitRows(blocks) if self.normalise else blocks
        with single_threaded_blas():
            moments = _Moments.of(blocks, self.exact_features)
            if moments.n < 2:
                raise ConfigError(f"principal components need at least 2 rows, got {moments.n}")
            standardises = self._standardises(moments.is_dense)
            scale = moments.scale() if standardises else np.ones(len(moments.mean))
            if moments.gram is not None:
                vectors, variances = _exact(moments.covariance() * scale[:, None] * scale)
                if standardises and not _stand_out(variances, moments.n):
                    vectors, variances = np.eye(len(scale)), (scale > 0).astype(np.float64)
            else:
                vectors, variances = self._approximate(blocks, moments, scale, rng, report)
        report(self.passes, self.passes)
        k = min(self.dimensions, len(moments.mean))
        vectors, variances = vectors[:, :k], np.maximum(variances[:k], 0.0)
        kept = variances > SMALLEST_VARIANCE * variances.max(initial=0.0)
        length = np.where(kept, variances, 1.0) ** -0.5 if self.whiten else np.ones(k)
        components = scale[:, None] * vectors * (length * kept)
        return FittedPca(
            moments.mean.astype(np.float32),
            components.astype(np.float32),
            variances.astype(np.float32),
            self.normalise,
        )

    def _standardises(self, is_dense: bool) -> bool:
        return is_dense if self.standardise == "auto" else self.standardise == "always"

    def _approximate(
        self, blocks: Iterable[Rows], moments: _Moments, scale: Float64, rng: np.random.Generator, report: Report
    ) -> tuple[Float64, Float64]:
        d = len(moments.mean)
        shape = (d, min(self.dimensions + self.oversampling, d))
        need_array(shape, "the basis of the principal components", FEWER_FEATURES, entry_bytes=4 * 8)
        basis = rng.standard_normal(shape)
        centre = moments.mean * scale
        for step in range(self.passes):
            basis = np.linalg.qr(basis)[0]
            image = np.zeros_like(basis)
            for block in blocks:
                _add_product(block, scale[:, None] * basis, image)
            image *= scale[:, None]
            image -= moments.n * np.outer(centre, centre @ basis)
            report(step, self.passes)
            if step < self.passes - 1:
                basis = image
        inner = basis.T @ image / (moments.n - 1)
        variances, rotation = np.linalg.eigh((inner + inner.T) / 2)
        return _upright(basis @ rotation[:, ::-1]), variances[::-1]


@dataclass(frozen=True)
class FittedPca:
    """An affine map to `k` dimensions.

    Attributes
    ----------
    mean : float32 (d,)
    components : float32 (d, k)
        With all scaling in them.
    variances : float32 (k,)
        Along each component, before whitening.
    normalise : bool
        Whether sparse rows are scaled to length 1 first.
    """

    mean: Float32
    components: Float32
    variances: Float32
    normalise: bool = False

    @property
    def n_features(self) -> int:
        return len(self.mean)

    @property
    def dimensions(self) -> int:
        return int(self.components.shape[1])

    def transform(self, block: Rows) -> Float32:
        """``(x - mean) components`` of each row, float32 (n, k). Cost O(nnz k); a row's bits depend on it alone."""
        if block.shape[1] != self.n_features:
            raise ConfigError(f"this projection was fitted to {self.n_features} features, got rows of {block.shape[1]}")
        if not sp.issparse(block):
            centred = np.ascontiguousarray(block, np.float32) - self.mean
            return product_of_rows(centred, np.ascontiguousarray(self.components.T))
        block = normalise_rows(block) if self.normalise else block
        out = np.empty((block.shape[0], self.dimensions), np.float32)
        offset = (self.mean.astype(np.float64) @ self.components.astype(np.float64)).astype(np.float32)

        def project(part: slice) -> None:
            out[part] = block[part] @ self.components - offset

        over_blocks(project, row_blocks(block.shape[0], THREAD_ROWS))
        return out

    def save(self, directory: Path, name: str = "embedding") -> None:
        """Write ``<name>.safetensors`` and ``<name>.json``."""
        arrays = {"mean": self.mean, "components": self.components, "variances": self.variances}
        write_arrays(directory / f"{name}.safetensors", arrays)
        about = {"kind": "pca", "n_features": self.n_features, "dimensions": self.dimensions}
        about_all = {**about, "normalise": self.normalise}
        (directory / f"{name}.json").write_text(json.dumps(about_all, indent=2) + "\n")

    @classmethod
    def load(cls, directory: Path, name: str = "embedding") -> Self:
        """Read what `save` wrote."""
        about = read_json(directory / f"{name}.json", _About)
        with ArrayFile(directory / f"{name}.safetensors") as file:
            return cls(
                file.take("mean", np.float32, (about.n_features,)).finite().array,
                file.take("components", np.float32, (about.n_features, about.dimensions)).finite().array,
                file.take("variances", np.float32, (about.dimensions,)).finite().within(0, np.inf).array,
                about.normalise,
            )


class _About(Described):
    """``<name>.json``."""

    kind: Literal["pca"]
    n_features: Count
    dimensions: Count
    normalise: bool


@dataclass(frozen=True)
class _UnitRows:
    """Blocks of rows, the sparse ones with rows of length 1; may be read again and again."""

    blocks: Iterable[Rows]

    def __iter__(self) -> Iterator[Rows]:
        return (normalise_rows(block) if sp.issparse(block) else block for block in self.blocks)


@dataclass(frozen=True)
class _Moments:
    n: int
    mean: Float64  # (d,)
    squares: Float64  # (d,): sums of squared distances from the mean
    gram: Float64 | None  # (d, d): sums of products of distances from the mean
    is_dense: bool

    @classmethod
    def of(cls, blocks: Iterable[Rows], exact_features: int) -> _Moments:
        """One pass over all blocks."""
        sums: _Sums | None = None
        for block in blocks:
            if sums is None:
                sums = _Sums.before(block, exact_features)
            sums.add(block)
        if sums is None:
            raise ConfigError("principal components need at least 2 rows, got no block of rows")
        n, off = sums.n, sums.total / max(sums.n, 1)
        squares = np.maximum(sums.squares - n * off**2, 0.0)
        gram = None if sums.gram is None else sums.gram - n * np.outer(off, off)
        return cls(n, sums.shift + off, squares, gram, sums.is_dense)

    def covariance(self) -> Float64:
        if self.gram is None:
            raise ValueError("there are too many features for their covariance")
        return self.gram / (self.n - 1)

    def scale(self) -> Float64:
        """One over each feature's standard deviation; 0 for one that is constant."""
        variances = self.squares / (self.n - 1)
        return np.where(variances > 0, np.where(variances > 0, variances, 1.0) ** -0.5, 0.0)


@dataclass
class _Sums:
    """Sums over rows of their distances from `shift`, a vector near the mean: differences of sums lose no digits."""

    shift: Float64
    total: Float64
    squares: Float64
    gram: Float64 | None
    is_dense: bool
    n: int = 0

    @classmethod
    def before(cls, block: Rows, exact_features: int) -> _Sums:
        d, is_dense = block.shape[1], not sp.issparse(block)
        is_exact = d <= exact_features
        if is_exact:
            need_array((d, d), "the covariance of the features", "Set exact_features lower.", entry_bytes=4 * 8)
        shift = np.zeros(d)
        if block.shape[0] and (is_dense or is_exact):  # else the rows stay sparse, and 0 is near their mean
            shift = np.asarray(block.mean(axis=0), np.float64).ravel()
        return cls(shift, np.zeros(d), np.zeros(d), np.zeros((d, d)) if is_exact else None, is_dense)

    def add(self, block: Rows) -> None:
        self.n += block.shape[0]
        for part in row_blocks(block.shape[0], GRAM_ROWS):
            rows: Any = block[part]
            if self.gram is None and not self.is_dense:
                values = rows.data.astype(np.float64)
                self.total += np.bincount(rows.indices, weights=values, minlength=len(self.total))
                self.squares += np.bincount(rows.indices, weights=values**2, minlength=len(self.total))
                continue
            dense = (rows if self.is_dense else rows.toarray()).astype(np.float64) - self.shift
            self.total += dense.sum(axis=0)
            self.squares += np.square(dense).sum(axis=0)
            if self.gram is not None:
                add_gram(dense, self.gram)


def _exact(covariance: Float64) -> tuple[Float64, Float64]:
    """Eigenvectors (columns) and eigenvalues, largest first."""
    values, vectors = np.linalg.eigh(covariance)
    return _upright(vectors[:, ::-1]), values[::-1]


def _stand_out(variances: Float64, n: int) -> bool:
    """Whether the largest eigenvalue of a correlation matrix is beyond chance (the edge of Marchenko and Pastur)."""
    edge = (1.0 + (len(variances) / n) ** 0.5) ** 2
    return bool(variances[0] > CHANCE * edge)


def _upright(vectors: Float64) -> Float64:
    """Each column with the sign that makes its largest entry positive: the sign of an eigenvector is arbitrary."""
    largest = np.abs(vectors).argmax(axis=0)
    return vectors * np.where(vectors[largest, np.arange(vectors.shape[1])] < 0, -1.0, 1.0)


def _add_product(block: Rows, basis: Float64, image: Float64) -> None:
    """Add ``block' block basis`` to `image` (d, l); threads share rows, then columns of the block."""
    if not sp.issparse(block):
        for part in row_blocks(len(block), GRAM_ROWS):
            rows = block[part].astype(np.float64)
            image += rows.T @ (rows @ basis)
        return
    n, d = block.shape
    scores = np.empty((n, basis.shape[1]))

    def score(part: slice) -> None:
        scores[part] = block[part] @ basis

    over_blocks(score, row_blocks(n, THREAD_ROWS))
    columns = block.T.tocsr()

    def add(part: slice) -> None:
        image[part] += columns[part] @ scores

    over_blocks(add, row_blocks(d, THREAD_COLUMNS))
