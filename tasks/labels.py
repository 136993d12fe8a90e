"""The labels that steps learn from."""

from __future__ import annotations

from xcore.artifacts import Workshop
from xcore.data.dataset import Dataset
from xcore.imputation.base import Imputed
from xcore.matrices import CSR


def training_labels(workshop: Workshop) -> CSR:
    """Labels of the training split: the imputed ones that are among the inputs as `labels`, else the dataset's own."""
    imputed = workshop.inputs.get("labels")
    return Imputed.load(imputed.directory).Y if imputed else Dataset(workshop.inputs["dataset"].directory).Y("train")
