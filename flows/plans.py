"""From data to an evaluation: typed plans that pipelines and studies share. Planning needs no Prefect."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

from flows.params import IngestParams, LearningParams, PipelineParams, TrainParams
from tasks.evaluate import EvaluationOptions, evaluation_recipe
from tasks.featurise import features_recipe, vocabulary_recipe
from tasks.fit import model_recipe
from tasks.group import groups_recipe
from tasks.impute import imputed_recipe, targets_recipe
from tasks.ingest import dataset_recipe, kept_dataset
from tasks.judged_imputation import judged
from tasks.predict import predictions_recipe
from tasks.score import planned_parts
from tasks.thresholds import thresholds_recipe
from xcore.artifacts import Recipe
from xcore.data.readers.base import Form, Split
from xcore.grouping.base import Grouper
from xcore.grouping.given import GivenGroups
from xcore.imputation.base import Imputer
from xcore.imputation.imputed import TargetOptions
from xcore.models.base import Model
from xcore.text.family import AnyText
from xcore.training.data import RowForm


@dataclass(frozen=True)
class DataPlan:
    """Rows and labels to learn from.

    Attributes
    ----------
    dataset : Recipe
    form : str
        Form of the features.
    features : Recipe
        What holds those rows: features made of text, or the dataset itself.
    vocabulary : Recipe or None
        What makes features of text.
    labels : Recipe or None
        Imputed labels; None where rows have their own.
    groups : Recipe or None
        Groups, where a model learns from them as bags.
    """

    dataset: Recipe
    form: RowForm
    features: Recipe
    vocabulary: Recipe | None = None
    labels: Recipe | None = None
    groups: Recipe | None = None

    @property
    def forms(self) -> tuple[RowForm, ...]:
        """Forms in which models can have the rows: their features, and texts also as they are or as token numbers."""
        return (self.form, "tokens", "text") if self.vocabulary else (self.form,)

    @property
    def row_form(self) -> Form:
        """Form of the rows in the dataset."""
        return "text" if self.vocabulary else cast(Form, self.form)

    def inputs(self) -> dict[str, Recipe]:
        """As inputs of a step that learns, by role."""
        roles = {"dataset": self.dataset, "features": self.features}
        others = {"vocabulary": self.vocabulary, "labels": self.labels, "groups": self.groups}
        return roles | {role: recipe for role, recipe in others.items() if recipe is not None}


@dataclass(frozen=True)
class LearningPlan:
    """A model, its predictions for a split, and their metrics."""

    data: DataPlan
    model: Recipe
    predictions: Recipe
    evaluation: Recipe

    def predictions_of(self, split: Split, k: int) -> Recipe:
        """What the model says of another split, or to another rank."""
        return predictions_recipe(self.model, split, k)


def plan_data(dataset: Recipe, form: Form, text: AnyText) -> DataPlan:
    """The rows of a dataset as features: made from its texts, or as they came."""
    if form != "text":
        return DataPlan(dataset, form, dataset)
    vocabulary = vocabulary_recipe(dataset, text)
    return DataPlan(dataset, text.makes, features_recipe(dataset, vocabulary, text), vocabulary)


def plan_imputation(
    data: DataPlan, grouper: Grouper, imputer: Imputer, model: Model, use: TargetOptions, seed: int
) -> DataPlan:
    """The same rows with labels imputed from groups, as a model learns from them."""
    groups = groups_recipe(grouper, data.dataset, data.features, seed)
    labels = imputed_recipe(judged(imputer, model), groups, data.dataset, data.features, seed)
    return replace(data, labels=targets_recipe(use, labels))


def plan_bags(data: DataPlan, grouper: Grouper, seed: int) -> DataPlan:
    """The same rows in bags, for a model that learns from the labels of bags: nothing is imputed."""
    return replace(data, groups=groups_recipe(grouper, data.dataset, data.features, seed))


def plan_learning(model: Model, data: DataPlan, options: EvaluationOptions, seed: int) -> LearningPlan:
    """A model, trained on the imputed labels or else on the dataset's own, and measured."""
    trained = model_recipe(model, data.forms, data.inputs(), seed)
    predictions = predictions_recipe(trained, options.split, max(options.ks))
    thresholds = thresholds_recipe(planned_parts(trained, data.row_form)) if options.thresholds else None
    evaluation = evaluation_recipe(predictions, data.dataset, options, model.score_scale, seed, thresholds)
    return LearningPlan(data, trained, predictions, evaluation)


def plan_ingest(params: IngestParams) -> Recipe:
    """A dataset."""
    return dataset_recipe(params.data, params.seed)


def plan_train(params: TrainParams) -> LearningPlan:
    """An evaluation on a dataset that is in the store."""
    recipe, dataset = kept_dataset(params.dataset)
    dataset.need_split(params.evaluation.split, "evaluation.split")
    if params.evaluation.thresholds:
        dataset.need_split("dev", "the split of evaluation.thresholds")
    return _plan(recipe, dataset.form, dataset.groups() is not None, params)


def plan_pipeline(params: PipelineParams, dataset: Recipe | None = None) -> LearningPlan:
    """An evaluation, from files on; a dataset that was planned before need not have its files read again for its id."""
    params.data.need_split(params.evaluation.split, "evaluation.split")
    if params.evaluation.thresholds:
        params.data.need_split("dev", "the split of evaluation.thresholds")
    dataset = dataset or dataset_recipe(params.data, params.seed)
    return _plan(dataset, params.data.reader.form, params.data.has_groups, params)


def _plan(dataset: Recipe, form: Form, has_groups: bool, params: LearningParams) -> LearningPlan:
    data = plan_data(dataset, form, params.text)
    grouper = params.grouping or (GivenGroups() if has_groups else None)
    if grouper is not None and "bags" in params.model.wants:
        data = plan_bags(data, grouper, params.seed)
    elif grouper is not None:
        data = plan_imputation(data, grouper, params.imputer, params.model, params.targets, params.seed)
    return plan_learning(params.model, data, params.evaluation, params.seed)
