"""Omikuji, the Rust implementation of Parabel and Bonsai, to compare our own with (an optional extra)."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, ClassVar, Literal, Self

import numba
import numpy as np
from pydantic import Field

from xcore.artifacts.identity import file_sha256
from xcore.errors import ArtifactDamaged, ConfigError, EyrieError
from xcore.models.base import Model, rows_for
from xcore.numeric.matrices import CSR, NO_LABEL, TopK
from xcore.saved import Count, Described, read_json
from xcore.training.context import FitContext
from xcore.training.data import Matrix, RowForm, TrainingData

# The library reports to stderr from its own threads, past Python: a process of its own keeps our stderr clean.
TRAINING_SCRIPT = """
import json, sys
import omikuji
data, forest, options, n_threads = sys.argv[1:]
parameters = omikuji.Model.default_hyper_param()
for name, value in json.loads(options).items():
    setattr(parameters, name, value)
omikuji.Model.train_on_data(data, parameters, int(n_threads)).save(forest)
"""


class Omikuji(Model):
    """Label tree of the omikuji library. Balanced trees with arity 2 are Parabel; wider, unbalanced trees are Bonsai.

    Notes
    -----
    The library takes no seed, so two trainings differ. It reads its training rows from a text file (about 15 bytes per
    non-zero), and predicts row by row. It knows no weights: each positive is kept with its weight as probability.
    It adds up its trees in the order in which the file system lists them, so a saved model's scores may differ in
    their last bit.
    """

    deterministic: ClassVar[bool] = False
    resumes: ClassVar[bool] = False  # the library trains in one call

    kind: Literal["omikuji"] = "omikuji"
    n_trees: int = Field(
        3,
        ge=1,
        le=100,
        title="Trees",
        description="Number of trees. Their scores are averaged. More trees are usually more accurate; time and size "
        "grow in proportion.",
    )
    arity: int = Field(2, ge=2, description="Number of clusters into which the labels of a node are split.")
    balanced: bool = Field(True, description="Split the labels of a node into clusters of equal size.")
    leaf_size: int = Field(100, ge=2, description="Nodes with fewer labels than this are not split.")
    max_depth: int = Field(20, ge=1, description="Maximum number of levels in a tree.")
    collapse_levels: int = Field(
        0, ge=0, description="Number of levels that are merged into one after each level that is kept. 0: none."
    )
    loss: Literal["squared_hinge", "logistic"] = Field("squared_hinge", description="Loss of the linear classifiers.")
    cost: float = Field(
        1.0,
        gt=0,
        description="Weight of the loss relative to the L2 penalty (C). A larger cost fits the training rows "
        "more closely.",
    )
    tolerance: float = Field(
        0.1, gt=0, description="Stopping tolerance of the classifiers. A larger tolerance stops sooner."
    )
    max_passes: int = Field(20, ge=1, description="Maximum number of passes over the rows of a node.")
    prune_below: float = Field(
        0.1,
        ge=0,
        description="Weights with a smaller absolute value are set to 0. A larger limit makes the model smaller.",
    )
    beam: int = Field(
        10,
        ge=1,
        description="Number of nodes per level that a prediction follows. A larger beam is slower and misses "
        "fewer labels.",
    )

    def _fit(self, data: TrainingData, context: FitContext) -> FittedOmikuji:
        """Write the rows to a file and train on it in a process of its own, with numba's number of threads."""
        _library()
        kept = context.rng.random(len(data.Y.data)) < data.Y.data
        with TemporaryDirectory() as folder:
            rows, forest = Path(folder) / "rows.txt", Path(folder) / "forest"
            _write_rows(data.X, data.Y, kept, rows)
            words = [str(rows), str(forest), json.dumps(self._parameters()), str(numba.get_num_threads())]
            done = subprocess.run(
                [sys.executable, "-c", TRAINING_SCRIPT, *words], capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise EyrieError(f"omikuji failed to train (exit code {done.returncode}): {done.stderr[-2000:]}")
            model = _library().Model.load(str(forest))
        context.report(1, 1)
        return FittedOmikuji(model, data.X.shape[1], data.Y.shape[1], self.beam)

    def _parameters(self) -> dict[str, Any]:
        library = _library()
        loss = library.LossType.LOG if self.loss == "logistic" else library.LossType.HINGE
        return {
            "n_trees": self.n_trees,
            "cluster_k": self.arity,
            "cluster_balanced": self.balanced,
            "min_branch_size": self.leaf_size,
            "max_depth": self.max_depth,
            "collapse_every_n_layers": self.collapse_levels,
            "linear_loss_type": loss.value,
            "linear_c": self.cost,
            "linear_eps": self.tolerance,
            "linear_max_iter": self.max_passes,
            "linear_weight_threshold": self.prune_below,
        }

    @classmethod
    def load(cls, directory: Path) -> FittedOmikuji:
        """Open a model that `FittedOmikuji.save` wrote."""
        return FittedOmikuji.load(directory)


@dataclass
class FittedOmikuji:
    """A forest held by the library."""

    model: Any  # omikuji.Model
    n_features: int
    n_labels: int
    beam: int

    @property
    def form(self) -> RowForm:
        return "sparse"

    def predict_topk(self, X: Matrix, k: int) -> TopK:
        """The k best labels of each row, one row after another; equal scores by ascending label."""
        X = rows_for(self, X, k)
        top = TopK(np.full((X.shape[0], k), NO_LABEL, np.int32), np.full((X.shape[0], k), -np.inf, np.float32))
        for i in range(X.shape[0]):
            part = slice(X.indptr[i], X.indptr[i + 1])
            pairs = zip(X.indices[part].tolist(), X.data[part].tolist(), strict=True)
            best = sorted(self.model.predict(pairs, self.beam, k), key=lambda pair: (-pair[1], pair[0]))
            for place, (label, score) in enumerate(best):
                top.labels[i, place], top.scores[i, place] = label, score
        if top.labels.max(initial=NO_LABEL) >= self.n_labels or np.isnan(top.scores).any():
            raise ArtifactDamaged(
                f"the model offers label {top.labels.max()} of {self.n_labels}, or a score that is no number: its "
                "tree files do not belong to its model.json; make the artifact again"
            )
        return top

    def save(self, directory: Path) -> None:
        """Write the library's files (JSON and CBOR), and ``model.json``."""
        self.model.save(str(directory))
        sizes = {"n_features": self.n_features, "n_labels": self.n_labels, "n_trees": self.model.n_trees}
        about = {"kind": "omikuji", **sizes, "beam": self.beam, "sha256": _digests(directory)}
        (directory / "model.json").write_text(json.dumps(about, indent=2) + "\n")

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read what `save` wrote.

        The library stops the process if a tree holds an index that is out of bounds. So its files must have the digests
        that ``model.json`` lists. That finds damage. It does not find files that somebody made on purpose: load models
        of this kind only from people you trust.
        """
        about = read_json(directory / "model.json", _About)
        settings = read_json(directory / "settings.json", _Settings)
        trees = sorted(directory.glob("tree*.cbor"))
        wanted = {f"tree{i}.cbor" for i in range(about.n_trees)}
        if {path.name for path in trees if path.is_file()} != wanted or len(trees) != about.n_trees:
            raise ArtifactDamaged(
                f"{directory} holds {[path.name for path in trees]}, expected files tree0.cbor to "
                f"tree{about.n_trees - 1}.cbor; make the artifact again"
            )
        if settings.n_features != about.n_features:
            raise ArtifactDamaged(
                f"{directory / 'settings.json'} is for {settings.n_features} features, expected {about.n_features}, as "
                "in model.json; make the artifact again"
            )
        found = _digests(directory)
        if about.sha256 and found != about.sha256:
            changed = sorted(name for name in found | about.sha256 if found.get(name) != about.sha256.get(name))
            raise ArtifactDamaged(f"{directory / changed[0]} was changed after it was saved; make the artifact again")
        try:
            model = _library().Model.load(str(directory))
        except RuntimeError as error:
            raise ArtifactDamaged(f"omikuji cannot read its files in {directory}; make the artifact again") from error
        return cls(model, about.n_features, about.n_labels, about.beam)


class _About(Described):
    """``model.json``."""

    kind: Literal["omikuji"]
    n_features: Count
    n_labels: Count
    n_trees: Annotated[int, Field(ge=1, le=100)]
    beam: Annotated[int, Field(ge=1, lt=2**31)]
    sha256: dict[str, str] = Field({})  # of the library's files; models of earlier versions have none


class _Settings(Described):
    """``settings.json`` of the library."""

    n_features: Count
    classifier_loss_type: Literal["Hinge", "Log"]


def _digests(directory: Path) -> dict[str, str]:
    """SHA-256 of the library's own files, by name."""
    return {
        path.name: file_sha256(path) for path in sorted((*directory.glob("tree*.cbor"), directory / "settings.json"))
    }


def _library() -> Any:
    try:
        import omikuji
    except ImportError as error:
        raise ConfigError(
            "kind: omikuji needs the omikuji library, which is not installed. "
            "Install it with pip install 'eyrie[omikuji]', or use kind: parabel"
        ) from error
    return omikuji


def _write_rows(X: CSR, Y: CSR, kept: Any, path: Path) -> None:
    """The text format of the extreme classification repository: sizes, then ``label,label column:value ...`` a row."""
    with path.open("w") as file:
        file.write(f"{X.shape[0]} {X.shape[1]} {Y.shape[1]}\n")
        for i in range(X.shape[0]):
            own = slice(Y.indptr[i], Y.indptr[i + 1])
            labels = ",".join(map(str, Y.indices[own][kept[own]].tolist()))
            part = slice(X.indptr[i], X.indptr[i + 1])
            pairs = zip(X.indices[part].tolist(), X.data[part].tolist(), strict=True)
            # The library refuses a row without features.
            features = " ".join(f"{column}:{value:.9g}" for column, value in pairs) or "0:0"
            file.write(f"{labels} {features}\n")
