"""From features and labels to an evaluation: the part that pipelines and studies share."""

from __future__ import annotations

from tasks.evaluate import EvaluationOptions, evaluation_recipe
from tasks.fit import model_recipe
from tasks.fit_sampled import sampled_model_recipe
from tasks.predict import predictions_recipe
from xcore.artifacts import Recipe
from xcore.models.base import Model
from xcore.models.negative_sampling import NegativeSampling


def plan_model(model: Model, dataset: Recipe, features: Recipe, labels: Recipe | None, seed: int) -> Recipe:
    """A trained model; one that trains against sampled labels has its vectors and its sampler as inputs."""
    if isinstance(model, NegativeSampling):
        return sampled_model_recipe(model, dataset, features, labels, seed)
    return model_recipe(model, dataset, features, labels, seed)


def plan_evaluation(
    model: Model, dataset: Recipe, features: Recipe, labels: Recipe | None, options: EvaluationOptions, seed: int
) -> Recipe:
    """A model, trained on the labels or else on the dataset's own, and measured."""
    trained = plan_model(model, dataset, features, labels, seed)
    predictions = predictions_recipe(trained, features, options.split, max(options.ks))
    return evaluation_recipe(predictions, dataset, options, seed)
