"""The labels that steps learn from."""

from __future__ import annotations

from xcore.artifacts import BuildContext
from xcore.data.dataset import Dataset
from xcore.imputation.imputed import Imputed
from xcore.numeric.matrices import CSR


def training_labels(context: BuildContext) -> CSR:
    """Labels of the training split: the imputed ones that are among the inputs as `labels`, else the dataset's own."""
    imputed = context.inputs.get("labels")
    return Imputed.load(imputed.directory).Y if imputed else Dataset(context.inputs["dataset"].directory).Y("train")
