"""What each head promises: its loss, its search for the best classes, and the limits that its paper states."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from xcore.heads.base import Distributing, Head, log_logistic, log_softmax
from xcore.heads.cascade import FittedCascade, MultiHeadCascade
from xcore.heads.codec import LabelCodec
from xcore.heads.fitting.base import Targets, TorchHead
from xcore.heads.fitting.cascade import CascadeModule, Prefixes
from xcore.heads.fitting.grouped import grouped_products
from xcore.heads.fitting.sampled import TABLE, SampledModule
from xcore.heads.label_sets import FittedLabelSets, LabelSets, SetCode
from xcore.heads.mixture import FittedMixture, MultiHeadMixture
from xcore.heads.one_hot import OneHot
from xcore.heads.product import FittedProduct, MultiHeadProduct
from xcore.heads.sampled import MultiHeadSampling
from xcore.heads.search import best_codes
from xcore.numeric.matrices import NO_LABEL, Float32, TopK, topk_of_dense
from xcore.training.shards import Lookup

D = 6


def features(n: int, seed: int = 0) -> Float32:
    return np.random.default_rng(seed).normal(size=(n, D)).astype(np.float32)


def one_label_each(n: int, n_classes: int, seed: int = 0) -> Targets:
    classes = np.random.default_rng(seed).integers(0, n_classes, n)
    return Targets(n, n_classes, np.arange(n), classes, np.ones(n, np.float32))


def even(n_classes: int) -> Float32:
    return np.full(n_classes, 1 / n_classes, np.float32)


def loss_of(head: TorchHead, x: Float32, targets: Targets) -> tuple[torch.Tensor, Lookup]:
    lookup = Lookup(head.tables)
    return head.loss(torch.from_numpy(x), targets, lookup, torch.Generator().manual_seed(0)), lookup


def unsettled(head: TorchHead, seed: int = 5) -> None:
    """Give all biases and tables some value, so that nothing is zero by its start."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in (*head.parameters(), *head.tables.values()):
            value.add_(torch.randn(value.shape, generator=generator), alpha=0.5)


def same_ranking(found: TopK, expected: TopK) -> None:
    np.testing.assert_array_equal(found.labels, expected.labels)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=2e-5, atol=1e-7)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(1, 9), st.data())
@settings(deadline=None)
def test_the_best_codes_are_those_of_a_full_list(lengths: list[int], k: int, data: st.DataObject) -> None:
    n_classes = data.draw(st.integers(1, int(np.prod(lengths))))
    codec, rng = LabelCodec(n_classes, tuple(lengths)), np.random.default_rng(data.draw(st.integers(0, 99)))
    scores = [rng.normal(size=(3, length)).astype(np.float32) for length in lengths]
    last = codec.digits(np.array([n_classes - 1]))[0].tolist()
    codes, found = best_codes(scores, k, last)
    all_digits = codec.digits(np.arange(n_classes))
    full = sum(own[:, all_digits[:, h]] for h, own in enumerate(scores))
    expected = topk_of_dense(np.asarray(full, np.float32), k)
    is_class = expected.labels != NO_LABEL
    assert np.array_equal(np.isfinite(found), is_class)
    np.testing.assert_allclose(found[is_class], expected.scores[is_class], rtol=1e-5, atol=1e-6)
    assert np.array_equal(codec.compose(codes[is_class]), expected.labels[is_class])


@pytest.mark.parametrize("loss", ["softmax", "logistic"])
def test_the_product_ranks_classes_as_a_full_list_does(loss: str) -> None:
    codec = LabelCodec(23, (5, 5))
    head = MultiHeadProduct.model_validate({"lengths": (5, 5), "loss": loss}).module(23, D, even(23), 0)
    unsettled(head)
    assert sum(value.numel() for value in head.parameters()) == (D + 1) * 10, "(d + 1) times the sum of the lengths"
    fitted, x = head.fitted(), features(9)
    assert isinstance(fitted, FittedProduct)
    log = log_softmax if loss == "softmax" else log_logistic
    scores = x @ fitted.weights.T + fitted.biases
    digits = codec.digits(np.arange(23))
    full = log(scores[:, :5])[:, digits[:, 0]] + log(scores[:, 5:])[:, digits[:, 1]]
    same_ranking(fitted.topk(x, 7), topk_of_dense(np.exp(full), 7))


def test_the_product_learns_the_digits_of_the_class() -> None:
    head = MultiHeadProduct(lengths=(3, 4)).module(11, D, even(11), 0)
    unsettled(head)
    x, targets = features(8), one_label_each(8, 11)
    scores = torch.from_numpy(x) @ head.weights.T + head.biases
    first, second = (torch.from_numpy(own) for own in LabelCodec(11, (3, 4)).digits(targets.classes).T)
    by_hand = cross_entropy(scores[:, :3], first, reduction="sum") + cross_entropy(
        scores[:, 3:], second, reduction="sum"
    )
    torch.testing.assert_close(loss_of(head, x, targets)[0], by_hand)


@pytest.mark.parametrize("loss", ["logistic", "softmax"])
@pytest.mark.parametrize("lengths", [(5, 5), (4, 3, 2), (23,)])
def test_a_cascade_that_keeps_all_groups_ranks_as_a_full_list_does(lengths: tuple[int, ...], loss: str) -> None:
    options = {"lengths": lengths, "candidates": 99, "bottleneck": 4, "loss": loss}
    head = MultiHeadCascade.model_validate(options).module(23, D, even(23), 0)
    unsettled(head)
    fitted, x = head.fitted(), features(9)
    assert isinstance(fitted, FittedCascade)
    found = fitted.topk(x, 30)
    same_ranking(found, topk_of_dense(cascade_by_hand(fitted, x), 30))
    assert ((found.scores[:, :23] >= 0) & (found.scores[:, :23] <= 1)).all()


def cascade_by_hand(head: FittedCascade, x: Float32) -> Float32:
    """The probability of every class, by products over all prefixes."""
    codec, classes = head.codec, np.arange(head.codec.n_classes)
    logits = [x @ head.weights.T + head.biases]
    logits += [(x @ further.weights.T + further.biases) @ further.table.T for further in head.further]
    result = np.ones((len(x), codec.n_classes))
    for n_digits, scores in enumerate(logits, 1):
        if head.is_logistic:
            probability = 1 / (1 + np.exp(-scores))
        else:
            parents = (
                np.arange(scores.shape[1]) // codec.lengths[n_digits - 1]
                if n_digits > 1
                else np.zeros(scores.shape[1], int)
            )
            odds = np.exp(scores)
            total = np.stack([odds[:, parents == parent].sum(axis=1) for parent in range(parents.max() + 1)], axis=1)
            probability = odds / total[:, parents]
        result *= probability[:, codec.prefixes(classes, n_digits)]
    return result.astype(np.float32)


def test_a_cascade_finds_few_candidates_without_the_others() -> None:
    head = MultiHeadCascade(lengths=(8, 3), candidates=2, bottleneck=4).module(24, D, even(24), 0)
    unsettled(head)
    fitted, x = head.fitted(), features(20)
    top = fitted.topk(x, 3)
    scores = x @ fitted.weights.T + fitted.biases
    for row, kept in enumerate(np.argsort(-scores, axis=1)[:, :2]):
        assert set((top.labels[row] // 3).tolist()) <= set(kept.tolist())


def test_true_groups_are_always_among_the_candidates() -> None:
    head = MultiHeadCascade(lengths=(10, 3), candidates=2).module(30, D, even(30), 0)
    assert isinstance(head, CascadeModule)
    rows, classes = np.repeat([0, 1], [5, 1]), np.array([0, 3, 6, 9, 29, 12])
    wanted = Prefixes.of(head.codec, Targets(2, 30, rows, classes, np.ones(6, np.float32)), 1)
    pairs = head._groups(torch.zeros(2, 10), wanted)
    found = set(zip(pairs.rows.tolist(), pairs.prefixes.tolist(), strict=True))
    assert set(zip(rows.tolist(), (classes // 3).tolist(), strict=True)) <= found
    assert np.bincount(pairs.rows).tolist() == [5, 2], "a row with more true groups than candidates keeps them all"


@pytest.mark.parametrize("lengths", [(4, 6), (4, 3, 2)])
def test_the_loss_of_a_cascade_is_that_of_its_candidates(lengths: tuple[int, ...]) -> None:
    """With all groups as candidates, by hand: for each head the mean binary cross-entropy of all prefixes."""
    head = MultiHeadCascade(lengths=lengths, candidates=99, bottleneck=4).module(24, D, even(24), 0)
    unsettled(head)
    assert isinstance(head, CascadeModule)
    x, targets = (
        features(5),
        Targets(5, 24, np.array([0, 0, 1, 2, 4]), np.array([1, 2, 23, 6, 0]), np.ones(5, np.float32)),
    )
    fitted, total = head.fitted(), 0.0
    logits = [x @ fitted.weights.T + fitted.biases]
    logits += [(x @ further.weights.T + further.biases) @ further.table.T for further in fitted.further]
    for n_digits, scores in enumerate(logits, 1):
        wanted = np.zeros(scores.shape)
        wanted[targets.rows, head.codec.prefixes(targets.classes, n_digits)] = 1
        total += -(wanted * log_logistic(scores) + (1 - wanted) * log_logistic(-scores)).mean(axis=1).sum()
    assert float(loss_of(head, x, targets)[0].detach()) == pytest.approx(total, rel=1e-5)


def test_with_one_true_group_only_its_rows_have_a_gradient() -> None:
    head = MultiHeadCascade(lengths=(4, 3), loss="softmax", bottleneck=4).module(12, D, even(12), 0)
    targets = Targets(2, 12, np.array([0, 1]), np.array([3, 11]), np.ones(2, np.float32))
    _, lookup = loss_of(head, features(2), targets)
    assert lookup.rows["head.2"].tolist() == [3, 4, 5, 9, 10, 11]


def test_products_by_group_have_the_gradient_of_the_same_sums() -> None:
    generator = torch.Generator().manual_seed(0)
    own = torch.randn(4, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    tables = torch.randn(3, 2, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    rows, groups = np.array([0, 0, 1, 2, 3, 3]), np.array([2, 0, 1, 2, 0, 2])
    found = grouped_products(own, tables, rows, groups)
    torch.testing.assert_close(found, torch.einsum("mad,md->ma", tables[groups], own[rows]))
    assert torch.autograd.gradcheck(lambda a, b: grouped_products(a, b, rows, groups), (own, tables))


@pytest.mark.parametrize(("groups", "lengths"), [(0, (6, 3)), (99, (6, 3)), (99, (5, 4))])
def test_sampling_all_groups_is_the_full_softmax(groups: int, lengths: tuple[int, int]) -> None:
    head = MultiHeadSampling(lengths=lengths, groups=groups).module(18, D, even(18), 0)
    unsettled(head)
    x = features(18)
    targets = Targets(18, 18, np.arange(18), np.arange(18), np.ones(18, np.float32))
    full = torch.from_numpy(x) @ head.tables[TABLE].T
    torch.testing.assert_close(loss_of(head, x, targets)[0], cross_entropy(full, torch.arange(18), reduction="sum"))


def test_the_groups_of_a_batch_are_corrected_by_the_chance_that_they_are_in_it() -> None:
    shares = np.array([0.5, 0.2, 0.1, 0.1, 0.05, 0.03, 0.02], np.float32)
    head = MultiHeadSampling(lengths=(4, 2)).module(7, D, shares, 0)
    unsettled(head)
    x, classes = features(3), np.array([0, 6, 1])
    chance = 1 - (1 - np.array([0.7, 0.02], np.float64)) ** 3  # of the groups of classes 0 and 1, and of class 6
    logits = x @ head.tables[TABLE][[0, 1, 6]].numpy().T - np.log(chance[[0, 0, 1]])
    by_hand = cross_entropy(torch.from_numpy(logits), torch.tensor([0, 2, 1]), reduction="sum").float()
    targets = Targets(3, 7, np.arange(3), classes, np.ones(3, np.float32))
    torch.testing.assert_close(loss_of(head, x, targets)[0], by_hand, rtol=1e-5, atol=1e-5)


def test_the_places_of_sampled_targets_hold_their_logits() -> None:
    head = MultiHeadSampling(lengths=(6, 3), groups=2).module(17, D, even(17), 0)
    unsettled(head)
    assert isinstance(head, SampledModule)
    x, targets = torch.from_numpy(features(40)), one_label_each(40, 17)
    full = x @ head.tables[TABLE].T
    own = full[np.arange(40), targets.classes]
    logits, places = head._own_groups(x, targets, Lookup(head.tables), torch.Generator().manual_seed(0))
    assert logits.shape == (40, 2 * 3)
    torch.testing.assert_close(logits[np.arange(40), places], own)
    used = np.unique(head.codec.prefixes(targets.classes, 1))
    logits, places = head._shared_groups(x, targets, used, Lookup(head.tables))
    torch.testing.assert_close(logits[np.arange(40), places], own)


def test_the_margin_turns_the_angle_to_the_right_class() -> None:
    margin, scale = 0.5, 8.0
    head = MultiHeadSampling(lengths=(1, 5), margin=margin, scale=scale).module(5, D, even(5), 0)
    unsettled(head)
    x, targets = features(30), one_label_each(30, 5)
    table = head.tables[TABLE].numpy()
    cosines = (x / np.linalg.norm(x, axis=1, keepdims=True)) @ (table / np.linalg.norm(table, axis=1, keepdims=True)).T
    own = cosines[np.arange(30), targets.classes].astype(np.float64)
    angle = np.arccos(own)
    cosines[np.arange(30), targets.classes] = np.where(
        angle + margin < np.pi, np.cos(angle + margin), own - margin * np.sin(np.pi - margin)
    )
    by_hand = cross_entropy(torch.from_numpy(scale * cosines), torch.from_numpy(targets.classes), reduction="sum")
    torch.testing.assert_close(loss_of(head, x, targets)[0], by_hand, rtol=1e-4, atol=1e-4)
    answer = head.fitted().topk(x, 5)
    assert np.abs(answer.scores).max() <= scale * 1.0001, "scores are scaled cosines"


def test_one_part_of_a_mixture_is_the_product() -> None:
    mixture = MultiHeadMixture(lengths=(3, 4), parts=1).module(11, D, even(11), 0)
    unsettled(mixture)
    heads = MultiHeadProduct(lengths=(3, 4)).module(11, D, even(11), 0)
    with torch.no_grad():
        heads.weights.copy_(mixture.weights[1:])
        heads.biases.copy_(mixture.biases[1:])
    x, targets = features(8), one_label_each(8, 11)
    torch.testing.assert_close(loss_of(mixture, x, targets)[0], loss_of(heads, x, targets)[0])
    same_ranking(mixture.fitted().topk(x, 5), heads.fitted().topk(x, 5))


def test_a_mixture_ranks_as_a_full_list_does_and_its_probabilities_sum_to_one() -> None:
    head = MultiHeadMixture(lengths=(5, 5), parts=3).module(25, D, even(25), 0)
    unsettled(head)
    fitted, x = head.fitted(), 2 * features(40)
    assert isinstance(fitted, FittedMixture)
    every = fitted.topk(x, 25)
    np.testing.assert_allclose(every.scores.sum(axis=1), 1, rtol=1e-5)
    few = fitted.topk(x, 4)
    same_ranking(few, TopK(every.labels[:, :4], every.scores[:, :4]))
    targets = Targets(40, 25, np.arange(40), every.labels[:, 0].astype(np.int64), np.ones(40, np.float32))
    assert float(loss_of(head, x, targets)[0].detach()) == pytest.approx(-np.log(every.scores[:, 0]).sum(), rel=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        OneHot(loss="softmax"),
        MultiHeadProduct(lengths=(4, 3), order="given"),
        MultiHeadCascade(lengths=(4, 3), loss="softmax", candidates=4, bottleneck=5),
        MultiHeadCascade(lengths=(3, 2, 2), loss="softmax", candidates=1, bottleneck=5),
        MultiHeadSampling(lengths=(4, 3)),
        MultiHeadSampling(lengths=(4, 3), margin=0.3),
        MultiHeadMixture(lengths=(4, 3), parts=3),
    ],
    ids=lambda head: f"{head.kind}-{getattr(head, 'margin', '')}{len(getattr(head, 'lengths', ()))}",
)
def test_log_probabilities_are_those_of_a_full_ranking(options: Head) -> None:
    """With 11 classes and 12 codes: a code without a class keeps its share."""
    n_classes, x = 11, features(9)
    head = options.module(n_classes, D, even(n_classes), 1)
    unsettled(head)
    fitted = head.fitted()
    assert options.is_distribution
    assert isinstance(fitted, Distributing)
    found = np.stack([fitted.log_probability(x, np.full(len(x), c)) for c in range(n_classes)], axis=1)
    top = fitted.topk(x, n_classes)
    full = np.take_along_axis(top.scores, np.argsort(top.labels, axis=1), axis=1)
    assert (np.sort(top.labels, axis=1) == np.arange(n_classes)).all()
    expected = log_softmax(full) if options.has_logits else np.log(full)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert (np.exp(found).sum(axis=1) <= 1 + 1e-5).all()
    own = np.arange(9) % n_classes
    np.testing.assert_allclose(fitted.log_probability(x, own), found[np.arange(9), own], rtol=1e-6)


def test_the_best_class_of_a_mixture_need_not_be_the_best_of_any_part() -> None:
    head = MultiHeadMixture(lengths=(5, 4), parts=4).module(20, D, even(20), 1)
    unsettled(head)
    fitted, x = head.fitted(), features(400)
    full = np.stack([fitted.log_probability(x, np.full(len(x), c)) for c in range(20)], axis=1)
    digits = fitted._scores(x)[1]
    codes = fitted.codec.digits(np.arange(20))
    of_parts = [sum(own[:, codes[:, h]] for h, own in enumerate(part)).argmax(axis=1) for part in digits]
    best = full.argmax(axis=1)
    assert (np.stack(of_parts) != best).all(axis=0).any()
    np.testing.assert_array_equal(fitted.topk(x, 1).labels[:, 0], best)


def test_scores_of_a_head_with_a_margin_are_scaled_cosines() -> None:
    x, head = features(5), MultiHeadSampling(lengths=(4, 3), margin=0.3, scale=8.0).module(11, D, even(11), 1)
    unsettled(head)
    fitted = head.fitted()
    top = fitted.topk(x, 11)
    weights = fitted.arrays()["head.weights"]
    cosines = (x / np.linalg.norm(x, axis=1, keepdims=True)) @ weights.T
    assert np.allclose(np.linalg.norm(weights, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(top.scores, 8 * np.take_along_axis(cosines, top.labels, axis=1), rtol=1e-4, atol=1e-5)


def test_logistic_heads_have_no_distribution() -> None:
    for head in (OneHot(), MultiHeadProduct(loss="logistic"), MultiHeadCascade(), LabelSets()):
        assert not head.is_distribution


def test_label_sets_are_digits_and_back() -> None:
    code = SetCode(10, 4)
    assert code.lengths == (16, 16, 4)
    rows, labels = np.array([0, 0, 0, 2]), np.array([0, 5, 9, 3])
    digits = code.digits(rows, labels, 3)
    assert digits.tolist() == [[1, 2, 2], [0, 0, 0], [8, 0, 0]]
    members = code.members(digits)
    assert [np.flatnonzero(own).tolist() for own in members] == [[0, 5, 9], [], [3]]


def test_probabilities_of_labels_and_of_sets_are_those_of_all_sets() -> None:
    head = LabelSets(labels_per_head=2).module(5, D, np.full(5, 0.3, np.float32), 0)
    unsettled(head)
    fitted, x = head.fitted(), features(6)
    assert isinstance(fitted, FittedLabelSets)
    every = np.array(list(product([False, True], repeat=5)))
    sets, probabilities = fitted.best_sets(x, 32)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
    assert (np.diff(probabilities, axis=1) <= 1e-7).all()
    assert {tuple(own) for own in sets[0].tolist()} == {tuple(own) for own in every.tolist()}
    of_labels = np.einsum("ns,nsl->nl", probabilities, sets)
    np.testing.assert_allclose(fitted.probabilities(x), of_labels, rtol=1e-4, atol=1e-6)
    same_ranking(fitted.topk(x, 3), topk_of_dense(fitted.probabilities(x), 3))


@pytest.mark.parametrize("head", [LabelSets(labels_per_head=2), MultiHeadProduct(loss="logistic", heads=2)])
def test_the_loss_of_uncertain_labels_is_the_mean_over_the_label_sets_they_may_be(head: Head) -> None:
    """Two labels of chance .3 and .6: the four sets that they can be, each with its probability."""
    module, chances = head.module(5, D, even(5), 0), {1: 0.3, 2: 0.6}

    def loss(labels: list[int], values: list[float]) -> float:
        targets = Targets(1, 5, np.zeros(len(labels), np.int64), np.array(labels, np.int64), np.float32(values))
        return float(loss_of(module, features(1), targets)[0].detach())

    expected = 0.0
    for drawn in product([True, False], repeat=2):
        chance = np.prod([q if is_on else 1 - q for q, is_on in zip(chances.values(), drawn, strict=True)])
        labels = [label for label, is_on in zip(chances, drawn, strict=True) if is_on]
        expected += float(chance) * loss(labels, [1.0] * len(labels))
    assert loss(list(chances), list(chances.values())) == pytest.approx(expected, rel=1e-5)


def test_more_sets_than_there_are_atoms_in_a_stone_can_be_told_apart() -> None:
    head = LabelSets(labels_per_head=5).module(80, D, np.full(80, 0.05, np.float32), 0)
    rows, labels = np.repeat(np.arange(4), 3), np.array([0, 41, 79, 3, 4, 5, 10, 20, 30, 77, 78, 79])
    targets = Targets(4, 80, rows, labels, np.ones(12, np.float32))
    optimiser = torch.optim.Adam(head.parameters(), 0.3)
    for _ in range(60):
        optimiser.zero_grad()
        loss_of(head, features(4), targets)[0].backward()
        optimiser.step()
    fitted = head.fitted()
    assert isinstance(fitted, FittedLabelSets)
    sets, _ = fitted.best_sets(features(4))
    assert [np.flatnonzero(own).tolist() for own in sets[:, 0]] == [[0, 41, 79], [3, 4, 5], [10, 20, 30], [77, 78, 79]]


def test_one_output_and_biases_tell_a_hundred_classes_apart_and_without_biases_two() -> None:
    """Theorem 3 of the paper by construction, and its limit."""
    places = np.linspace(-1, 1, 100)
    with_biases = 2 * places[:, None] * places - places**2
    assert (with_biases.argmax(axis=1) == np.arange(100)).all()
    weights = np.random.default_rng(0).normal(size=100)
    winners = {int((value * weights).argmax()) for value in np.linspace(-5, 5, 1001) if value}
    assert len(winners) == 2


@pytest.mark.parametrize(
    "options",
    [
        MultiHeadProduct(),
        MultiHeadMixture(parts=2),
        MultiHeadCascade(bottleneck=8),
        MultiHeadCascade(bottleneck=8, loss="softmax"),
        MultiHeadSampling(),
        MultiHeadSampling(groups=2),
    ],
    ids=lambda head: f"{head.kind} {getattr(head, 'loss', '')}{getattr(head, 'groups', '')}",
)
def test_no_step_allocates_rows_times_classes(options: Head) -> None:
    n_rows, n_classes = 32, 50_000
    head = options.module(n_classes, D, even(n_classes), 0)
    x, targets = features(n_rows), one_label_each(n_rows, n_classes)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiled:
        loss, lookup = loss_of(head, x, targets)
        torch.autograd.grad(loss, [*head.parameters(), *lookup.leaves.values()])
    largest = max(event.cpu_memory_usage for event in profiled.events())
    assert 0 < largest < 0.5 * n_rows * n_classes * 4


@pytest.mark.parametrize(
    "options",
    [
        OneHot(),
        OneHot(loss="softmax"),
        MultiHeadProduct(),
        MultiHeadProduct(loss="logistic"),
        LabelSets(),
        MultiHeadCascade(),
        MultiHeadCascade(loss="softmax"),
        MultiHeadSampling(),
        MultiHeadSampling(groups=2, lengths=(5, 4)),
        MultiHeadMixture(),
    ],
    ids=lambda head: f"{head.kind} {getattr(head, 'loss', '')}{getattr(head, 'groups', '')}",
)
def test_rows_without_a_class_have_a_finite_loss_and_gradient(options: Head) -> None:
    """A part of a batch may have none at all."""
    head = options.module(20, D, even(20), 0)
    nothing = Targets(3, 20, np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32))
    x = torch.from_numpy(features(3)).requires_grad_()
    lookup = Lookup(head.tables)
    loss = head.loss(x, nothing, lookup, torch.Generator().manual_seed(0))
    found = torch.autograd.grad(loss, [x, *head.parameters(), *lookup.leaves.values()])
    assert set(lookup.rows) == set(head.tables)
    assert all(bool(torch.isfinite(own).all()) for own in (loss, *found))
