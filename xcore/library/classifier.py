"""One scikit-learn classifier for every model of the family."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from xcore.components import Report, silent
from xcore.errors import ArgumentError
from xcore.library.component_estimator import ComponentEstimator, component_of, value_errors, with_options
from xcore.library.label_space import Labels, LabelSpace, matrix_of
from xcore.library.saved_classifier import SavedClassifier
from xcore.models.base import Fitted, Model
from xcore.models.family import MODEL_KINDS
from xcore.numeric.matrices import CSR, TopK
from xcore.numeric.ragged import TokenRows
from xcore.training.checkpoints import training_name
from xcore.training.context import FitContext
from xcore.training.data import Bags, LabelSide, Matrix, TrainingData

DEFAULT_K = 5


class Classifier(ClassifierMixin, ComponentEstimator):
    """Extreme classification with the habits of scikit-learn.

    Parameters
    ----------
    model : Model or str
        A model with its options, or the name of a kind: ``"parabel"``, ``"ova"``, ...
    seed : int
        The only source of randomness. One seed gives the same bits for any number of threads.
    threads : int or None
        Most threads of a fit or prediction; None: as many as numba is set to use.
    device : str
        Where torch models train: ``auto``, ``cpu`` or ``cuda``.
    scratch : path or None
        Folder for checkpoints. A fit that was killed goes on from there when it is run again with the same data and
        options. A fit that ends removes its checkpoints.
    **options
        Options of the model, as in ``Classifier("parabel", n_trees=3)``.

    Attributes
    ----------
    classes_ : array (L,)
        The label of each column of the targets.
    n_features_in_ : int
    fitted_ : Fitted
        The trained model.
    k_ : int
        How many labels `predict` gives a row: the mean of the training rows, rounded, and at least 1.
    label_space_ : LabelSpace
    """

    _role: ClassVar[str] = "model"
    _kinds: ClassVar[Any] = MODEL_KINDS
    _family: ClassVar[Any] = Model

    def __init__(
        self,
        model: Model | str = "parabel",
        *,
        seed: int = 0,
        threads: int | None = None,
        device: str = "auto",
        scratch: str | Path | None = None,
        **options: Any,
    ) -> None:
        self.model = with_options(component_of(model, MODEL_KINDS, Model, "model"), options) if options else model
        self.seed = seed
        self.threads = threads
        self.device = device
        self.scratch = scratch

    def fit(
        self,
        X: Matrix,
        y: Any,
        *,
        dev: tuple[Matrix, Any] | None = None,
        classes: Any = None,
        labels: LabelSide | None = None,
        bags: Bags | None = None,
        report: Report = silent,
    ) -> Self:
        """Train the model; the cost is that of the model.

        Parameters
        ----------
        X : sparse matrix of any format, or array (n, d)
        y : sparse matrix or array (n, L), list of label lists, or one label per row
            A value of a matrix is the chance in [0, 1] that the label is the row's. Labels may be any hashable values.
        dev : (X, y) or None
            Rows that may choose when to stop, with labels in the same form.
        classes : sequence (L,) or None
            Names of the columns of a matrix y; None numbers them.
        labels, bags : LabelSide, Bags or None
            For models that ask for texts or features of the labels, or for bags of rows.
        report : Report
            Receives progress as ``report(step, total, metrics)``.
        """
        with value_errors():
            space = LabelSpace.of(y, classes)
            rows = self._rows(X, is_fit=True)
            held = None if dev is None else (self._rows(dev[0], is_fit=False), space.encode(dev[1]))
            targets = space.encode(y)
            check_consistent_length(rows, targets)
            data = TrainingData.of(rows, targets, dev=held, labels=labels, bags=bags)
            with self._checkpoints(data) as scratch:
                rng = np.random.default_rng(self.seed)
                context = FitContext(rng, report, scratch, self.device, self.threads)
                fitted = self._component().fit(data, context)
        per_row = data.Y.nnz / max(data.Y.shape[0], 1)
        self._keep(fitted, space, 1 if space.form == "single" else max(1, round(per_row)))
        return self

    def predict(self, X: Matrix, k: int | None = None) -> Any:
        """The best labels of each row, in the form that the training labels had.

        Parameters
        ----------
        X : sparse matrix or array (n, d)
        k : int or None
            Labels per row; None: ``k_``.

        Returns
        -------
        One label per row (n,) for training with one label per row; a list of label lists, best first, for label
        lists; a matrix (n, L) of 0 and 1 for a matrix: CSR for a sparse one, an array for an array.
        """
        check_is_fitted(self)
        if self.label_space_.form == "single" and k not in (None, 1):
            raise ArgumentError(f"predict gives one label per row here, got k={k}: use predict_topk for more")
        return self.label_space_.decode(self.predict_topk(X, self.k_ if k is None else k))

    def predict_scores(self, X: Matrix, k: int = DEFAULT_K) -> CSR:
        """The scores of the k best labels of each row, CSR float32 (n, L); the other labels are not stored.

        What a score means depends on the model. It is comparable within a row. Cost as `predict_topk`.
        """
        top = self.predict_topk(X, k)
        return matrix_of(top, top.scores, len(self.classes_))

    def predict_topk(self, X: Matrix, k: int = DEFAULT_K) -> TopK:
        """The k best labels of each row, best first, as positions in ``classes_``; -1 where there are fewer."""
        check_is_fitted(self)
        with value_errors(), FitContext(threads=self.threads).limited_threads():
            return self.fitted_.predict_topk(self._rows(X, is_fit=False), k)

    def score(self, X: Matrix, y: Any, k: int = 1) -> float:
        """Precision at k: the share of the k best labels that are true. For one label per row and k = 1: accuracy.

        Stored entries of a matrix are the true labels, whatever their value. A row without a true label is a miss.
        """
        top = self.predict_topk(X, k)
        with value_errors():
            truth = self.label_space_.encode(y).copy()
        check_consistent_length(top.labels, truth)
        truth.data[:] = 1
        hits = matrix_of(top, np.ones(top.labels.shape, np.float32), len(self.classes_)).multiply(truth)
        return float(hits.sum()) / (len(top) * k)

    def save(self, folder: str | Path) -> None:
        """Write the trained model to a new or empty folder, without pickle; `load` reads it."""
        check_is_fitted(self)
        own = {"seed": self.seed, "threads": self.threads, "device": self.device}
        SavedClassifier(self._component(), self.fitted_, self.label_space_, self.k_, own).write(Path(folder))

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read what `save` wrote. The scratch folder is not kept."""
        saved = SavedClassifier.read(Path(folder))
        classifier = cls(saved.model, **saved.parameters)
        classifier._keep(saved.fitted, saved.space, saved.k)
        classifier.n_features_in_ = saved.fitted.n_features
        return classifier

    def _keep(self, fitted: Fitted, space: LabelSpace, k: int) -> None:
        self.fitted_: Fitted = fitted
        self.label_space_: LabelSpace = space
        self.classes_: Labels = space.classes
        self.k_: int = k

    def _rows(self, X: Matrix, *, is_fit: bool) -> Matrix:
        """Rows of numbers, checked as scikit-learn does; other forms are for the model to check."""
        if isinstance(X, TokenRows) or _is_text(X) or _is_image(X):
            return X
        fewest = 1 if is_fit else 0
        return validate_data(
            self, X, accept_sparse="csr", dtype=np.float32, ensure_min_samples=fewest, reset=is_fit, order="C"
        )

    @contextmanager
    def _checkpoints(self, data: TrainingData) -> Iterator[Path | None]:
        """A folder of its own for each training, so that the trainings of a search do not meet; gone at the end."""
        if self.scratch is None:
            yield None
            return
        matrices = [matrix for matrix in (data.X, data.Y) if sp.issparse(matrix) or isinstance(matrix, np.ndarray)]
        own = Path(self.scratch) / training_name(self._component().options(), self.seed, matrices)[:16]
        yield own
        shutil.rmtree(own, ignore_errors=True)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "fitted_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = True
        model = MODEL_KINDS.get(self.model) if isinstance(self.model, str) else self.model
        tags.non_deterministic = not getattr(model, "deterministic", True)
        return tags


def _is_text(X: Matrix) -> bool:
    return isinstance(X, list | tuple) and bool(X) and isinstance(X[0], str)


def _is_image(X: Matrix) -> bool:
    return isinstance(X, np.ndarray) and X.dtype == np.uint8 and X.ndim > 2
