"""One estimator for every imputer: targets of rows from labels of groups."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import validate_data

from xcore.components import Report, silent
from xcore.data.dataset import Merge
from xcore.grouping.groups import Groups
from xcore.imputation.base import Imputer
from xcore.imputation.family import IMPUTER_KINDS
from xcore.imputation.imputed import Imputed
from xcore.library.component_estimator import ComponentEstimator, component_of, value_errors, with_options
from xcore.library.group_labels import read_groups
from xcore.library.label_space import Labels
from xcore.numeric.matrices import CSR, sparse_of_dense
from xcore.training.context import FitContext
from xcore.training.data import Matrix, checked_rows


class LabelImputer(ComponentEstimator):
    """Give the labels of groups to their members, each with the chance that it is true.

    An imputer works on the rows that it is fitted on: it has no ``transform`` for new rows. Train a `Classifier` on its
    targets for those.

    Parameters
    ----------
    imputer : Imputer or str
        An imputer with its options, or the name of a kind: ``"disaggregate"``, ``"auto"``, ...
    seed : int
        The only source of randomness. One seed gives the same bits for any number of threads.
    threads : int or None
        Most threads; None: as many as numba is set to use.
    **options
        Options of the imputer, as in ``LabelImputer("eagle", iterations=50)``.

    Attributes
    ----------
    targets_ : CSR float32 (n, L)
        Stored entries are the imputed labels; a value is the chance in (0, 1] that the label is the row's.
    classes_ : array (L,)
        The label of each column.
    groups_ : Groups
        The groups as they were understood.
    imputed_ : Imputed
        The targets with what the imputer has to say about them, in ``details``.
    n_features_in_ : int
    """

    _role: ClassVar[str] = "imputer"
    _kinds: ClassVar[Any] = IMPUTER_KINDS
    _family: ClassVar[Any] = Imputer

    def __init__(
        self, imputer: Imputer | str = "disaggregate", *, seed: int = 0, threads: int | None = None, **options: Any
    ) -> None:
        given = with_options(component_of(imputer, IMPUTER_KINDS, Imputer, "imputer"), options) if options else imputer
        self.imputer = given
        self.seed = seed
        self.threads = threads

    def fit(
        self,
        X: Matrix,
        groups: Any,
        labels: Any = None,
        *,
        merge: Merge = "list",
        classes: Any = None,
        report: Report = silent,
    ) -> Self:
        """Impute the labels of the rows of X; the cost is that of the imputer.

        Parameters
        ----------
        X : sparse matrix of any format, or array (n, d)
        groups : array (n,) of group ids, matrix (m, n) or Groups
            The group of each row, where None and NaN mean no group; or one row per group with a non-zero for each
            member, for groups that overlap. `Groups` bring their labels with them.
        labels : mapping, list of label lists or matrix (m, L)
            The labels of each group. A mapping goes from group ids to labels. Lists and matrices are in the order of
            the rows of a membership matrix, or in ascending order of the group ids. A label that k members carry
            stands k times in a list, or as ``{label: k}``, or as the value k of the matrix.
        merge : 'list' or 'set'
            list: it is known how many members carry a label. set: it is only known that at least one does.
        classes : sequence (L,) or None
            Names of the columns of a matrix of labels; None numbers them.
        report : Report
            Receives progress.
        """
        with value_errors():
            checked = validate_data(self, X, accept_sparse="csr", dtype=np.float32, order="C")
            rows = checked_rows(checked)
            features = rows.X if rows.form == "sparse" else sparse_of_dense(rows.X)
            found, names = read_groups(groups, labels, features.shape[0], merge, classes)
            with FitContext(threads=self.threads).limited_threads():
                imputed = self._component().impute(features, found, np.random.default_rng(self.seed), report)
        self.imputed_: Imputed = imputed
        self.groups_: Groups = found
        self.classes_: Labels = names
        self.targets_: CSR = imputed.Y
        return self

    def fit_transform(self, X: Matrix, groups: Any, labels: Any = None, **options: Any) -> CSR:
        """`fit` with the same arguments, and the targets that ``Classifier.fit`` takes: CSR float32 (n, L)."""
        return self.fit(X, groups, labels, **options).targets_

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "targets_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        return tags
