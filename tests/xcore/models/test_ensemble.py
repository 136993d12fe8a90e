"""An ensemble adds up the scores of its members on one scale, with weights that dev rows choose."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from flows.params import PipelineParams
from flows.plans import LearningPlan, plan_data, plan_learning
from flows.presets import load_params
from tasks import settings
from tasks.evaluate import EvaluationOptions
from tasks.ingest import dataset_recipe
from tasks.model_parts import parts_of
from tasks.predict import FILE
from tasks.score import open_scorer
from tests.contracts.test_models import N_LABELS, planted
from tests.small_models import texts, write_texts
from xcore.artifacts import Artifact, Recipe
from xcore.data.dataset import Dataset
from xcore.data.source import Source
from xcore.errors import ConfigError
from xcore.inference.scorer import Cut
from xcore.models.ensemble import Ensemble, Member
from xcore.models.ensemble.fitted import FittedEnsemble, FittedMember
from xcore.models.ensemble.scale import Scale, best_of_sum, common_scale, relative
from xcore.models.ensemble.weights import choose_weights
from xcore.models.family import AnyModel
from xcore.models.ova import Ova
from xcore.models.parabel import Parabel
from xcore.numeric.matrices import NO_LABEL, TopK, binary_csr
from xcore.text.tfidf import HashedTfidf, Tfidf
from xcore.training.context import FitContext
from xcore.training.data import TrainingData
from xcore.training.dev_choice import hits_of


def test_sums_are_those_of_a_dictionary() -> None:
    rng = np.random.default_rng(0)
    labels = np.stack([rng.choice(9, 6, replace=False) for _ in range(40)] * 2).reshape(40, 12).astype(np.int32)
    labels[rng.random(labels.shape) < 0.2] = NO_LABEL
    scores = rng.random(labels.shape).round(2)
    top = best_of_sum(labels, scores, 4)
    for row in range(40):
        sums: dict[int, float] = {}
        for label, score in zip(labels[row].tolist(), scores[row].tolist(), strict=True):
            if label != NO_LABEL:
                sums[label] = sums.get(label, 0.0) + score
        best = sorted(sums, key=lambda label: (-np.float32(sums[label]), label))[:4]
        assert top.labels[row, : len(best)].tolist() == best
        np.testing.assert_array_equal(top.scores[row, : len(best)], np.float32([sums[label] for label in best]))


@given(st.lists(st.tuples(st.floats(-50, 50, width=32), st.booleans()), min_size=1, max_size=400))
def test_a_scale_keeps_the_order_of_scores_and_stays_within_0_and_1(offers: list[tuple[float, bool]]) -> None:
    scores, hits = np.array([score for score, _ in offers]), np.array([float(hit) for _, hit in offers])
    scale = Scale.fit(scores, hits)
    assert (np.diff(scale.scores) > 0).all()
    found = scale.apply(np.sort(scores).astype(np.float32))
    assert (np.diff(found) >= 0).all()
    assert found.min() >= 0
    assert found.max() <= 1


def test_a_scale_says_how_often_a_score_is_right() -> None:
    rng = np.random.default_rng(0)
    chance = rng.random(200_000)
    scale = Scale.fit(np.log(chance), (rng.random(len(chance)) < chance).astype(float))
    asked = np.linspace(0.05, 0.95, 19)
    np.testing.assert_allclose(scale.apply(np.log(asked).astype(np.float32)), asked, atol=0.02)


def test_without_dev_rows_scores_lie_between_the_last_candidate_and_the_best() -> None:
    top = TopK(np.array([[3, 1, 2], [0, 5, NO_LABEL], [4, NO_LABEL, NO_LABEL]], np.int32),
               np.array([[9, 8, 5], [-1, -2, -np.inf], [0.3, -np.inf, -np.inf]], np.float32))  # fmt: skip
    expected = [[1, 0.75, 0], [1, 0, 0], [1, 0, 0]]
    np.testing.assert_array_equal(common_scale(top, None, 3), expected)
    assert relative(top.scores, 2)[0, 2] == 0, "what lies below the last candidate is at the floor too"


def test_weights_go_to_the_member_that_is_right() -> None:
    rng = np.random.default_rng(0)
    truth = binary_csr(rng.integers(0, 20, 300), np.arange(301), 20)
    right = np.stack([np.r_[true, (true + 1 + rng.permutation(19)[:9]) % 20] for true in truth.indices])
    wrong = np.stack([rng.choice(20, 10, replace=False) for _ in range(300)])
    score = np.tile(np.linspace(1, 0, 10), (300, 1))
    weights, quality = choose_weights([wrong.astype(np.int32), right.astype(np.int32)], [score, score], truth)
    assert quality == 1.0
    assert weights[1] > 0.5
    assert weights.sum() == pytest.approx(1)


def test_hits_are_the_true_labels_among_the_offers() -> None:
    truth = binary_csr(np.array([1, 2, 0]), np.array([0, 2, 2, 3]), 3)
    labels = np.array([[2, 0], [1, NO_LABEL], [NO_LABEL, 0]], np.int32)
    np.testing.assert_array_equal(hits_of(labels, truth), [[1, 0], [0, 0], [0, 1]])


def with_dev(n: int = 240) -> TrainingData:
    data, held = planted(n), planted(80, seed=5)
    return TrainingData.of(data.X, data.Y, dev=(held.X, held.Y))


def test_an_answer_is_the_weighted_sum_of_the_members_answers(tmp_path: Path) -> None:
    model = Ensemble(members=(Member(model=Parabel(), copies=2), Member(model=Ova(), seed=3)), candidates=6)
    fitted = model.fit(with_dev(), FitContext(rng=np.random.default_rng(1)))
    assert isinstance(fitted, FittedEnsemble)
    assert len(fitted.members) == 3
    assert fitted.members[0].weight == fitted.members[1].weight, "copies share a weight"
    assert sum(member.weight for member in fitted.members) == pytest.approx(1)
    fitted.save(tmp_path)
    loaded = Ensemble.load(tmp_path)
    rows = planted(20, seed=6).X
    sums = np.zeros((20, N_LABELS))
    for member in fitted.members:
        assert member.scale is not None
        top = member.fitted.predict_topk(rows, 6)
        shares = member.weight * member.scale.apply(top.scores)
        for row in range(20):
            sums[row, top.labels[row]] += shares[row]
    for found in (fitted.predict_topk(rows, 3), loaded.predict_topk(rows, 3)):
        np.testing.assert_allclose(found.scores, -np.sort(-sums, axis=1)[:, :3], rtol=1e-6)


def test_a_member_has_a_say_only_in_proportion_to_its_weight() -> None:
    data = planted()
    good = Parabel().fit(data)
    useless = Ova().fit(TrainingData.of(data.X, data.Y[np.random.default_rng(0).permutation(240)]))
    rows = planted(50, seed=3).X
    both = FittedEnsemble("sparse", 12, (FittedMember(good, weight=1.0), FittedMember(useless, weight=0.0)))
    alone = good.predict_topk(rows, 1)
    assert np.array_equal(both.predict_topk(rows, 1).labels, alone.labels)


def test_an_ensemble_in_an_ensemble_is_refused_and_the_schema_is_finite() -> None:
    inner = {"kind": "ensemble", "members": [{"model": {"kind": "ova"}}]}
    with pytest.raises(ValidationError, match="does not match any of the expected tags"):
        TypeAdapter(AnyModel).validate_python({"kind": "ensemble", "members": [{"model": inner}]})
    definitions = PipelineParams.model_json_schema()["$defs"]
    kinds = definitions["Member"]["properties"]["model"]["discriminator"]["mapping"]
    assert "parabel" in kinds
    assert "ensemble" not in kinds


def test_options_of_members_can_be_set_by_their_place() -> None:
    generated = {"kind": "generated", "n_train": 20, "n_test": 5, "n_labels": 4, "n_features": 32}
    words = ["model.kind=ensemble", 'model.members=[{"model": {"kind": "ova"}}, {"model": {"kind": "parabel"}}]']
    words += ["model.members.1.model.n_trees=3", "model.members.0.copies=2", f"data={{reader: {generated}}}"]
    params = load_params(PipelineParams, None, words)
    assert isinstance(params.model, Ensemble)
    assert params.model.members[1].model == Parabel(n_trees=3)
    assert [nested.seed for nested in params.model.nested_models().values()] == [0, 1, 0]


def learning(model: Any, folder: Path) -> LearningPlan:
    files = {"train": [write_texts(folder / "train.jsonl", 90, 0)], "test": [write_texts(folder / "test.jsonl", 30, 1)]}
    source = Source.model_validate({"reader": {"kind": "jsonl", "text": "text"}, "holdout": {"dev": 0.2}, **files})
    data = plan_data(dataset_recipe(source, 0), "text", Tfidf())
    return plan_learning(model, data, EvaluationOptions(n_bootstrap=0), 0)


def test_members_are_artifacts_that_plain_trainings_share(make: Callable[[Recipe], Artifact], tmp_path: Path) -> None:
    plan = learning(Ensemble(members=(Member(model=Ova()), Member(model=Parabel(), copies=2))), tmp_path)
    make(plan.evaluation)
    inputs = plan.model.inputs
    assert inputs["member-0"].id == learning(Ova(), tmp_path).model.id
    assert inputs["member-1"].id == learning(Parabel(), tmp_path).model.id
    assert inputs["member-2"].seed == 1
    assert [recipe.kind for recipe in plan.model.lineage()].count("features") == 1
    fitted = Ensemble.load(settings.store().open(plan.model.ref).directory)
    assert fitted.form == "sparse"
    assert fitted.members[0].scale is not None, "the dev split was used"


def test_members_with_featurisers_of_their_own_make_an_ensemble_of_texts(
    make: Callable[[Recipe], Artifact], tmp_path: Path
) -> None:
    members = (Member(model=Ova()), Member(model=Parabel(), text=HashedTfidf(n_features=1024)))
    plan = learning(Ensemble(members=members), tmp_path)
    make(plan.evaluation)
    fitted = Ensemble.load(settings.store().open(plan.model.ref).directory)
    assert fitted.form == "text"
    assert [member.fitted.n_features for member in fitted.members][1] == 1024
    predictions = settings.store().open(plan.predictions.ref)
    rows = [text for block in Dataset(settings.store().open(plan.data.dataset.ref).directory).text_blocks("test")
            for text in block.to_pylist()]  # fmt: skip
    expected, stored = fitted.predict_topk(rows, 5), TopK.from_table(pq.read_table(predictions.directory / FILE), 5)
    assert np.array_equal(stored.labels, expected.labels), "from the stored rankings of the members, as from the rows"
    assert np.array_equal(stored.scores, expected.scores)
    assert {"member-0", "member-1"} < set(predictions.manifest.inputs)
    asked = texts(40, 9)
    top = fitted.predict_topk([text for text, _ in asked], 1)
    names = ["ant", "bee", "cat", "dog", "eel", "fox"]
    assert np.mean([names[best] == label for (best,), (_, label) in zip(top.labels, asked, strict=True)]) > 0.9
    assert fitted.predict_topk([], 2).labels.shape == (0, 2)
    parts = parts_of(plan.model.ref)
    inputs = {role: settings.store().open(recipe.ref) for role, recipe in parts.inputs().items()}
    answer = open_scorer(parts.used, inputs).answer(pa.record_batch({"text": ["bee1 bee2", None]}), Cut(k=2))
    assert answer["labels"][0][0].as_py() == "bee"


def test_an_ensemble_of_texts_is_trained_in_memory_too() -> None:
    rows = texts(90, 0)
    names = sorted({label for _, label in rows})
    Y = np.array([[label == name for name in names] for _, label in rows], float)
    members = (Member(model=Ova(), text=Tfidf()), Member(model=Parabel(), text=HashedTfidf(n_features=1024)))
    fitted = Ensemble(members=members).fit(TrainingData.of([text for text, _ in rows], Y))
    asked = texts(40, 9)
    top = fitted.predict_topk([text for text, _ in asked], 1)
    assert np.mean([names[best] == label for (best,), (_, label) in zip(top.labels, asked, strict=True)]) > 0.9


def test_members_that_need_texts_are_refused_where_there_are_none() -> None:
    data = planted()
    with pytest.raises(ConfigError, match="a text featuriser of its own, but the rows are sparse"):
        Ensemble(members=(Member(model=Ova(), text=Tfidf()),)).fit(data)
