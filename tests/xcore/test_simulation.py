from itertools import product

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from threadpoolctl import threadpool_limits

from xcore.simulation.family import AnySimulation
from xcore.simulation.simulations import (
    ESTIMATORS,
    ClassificationSimulation,
    Estimates,
    RegressionSimulation,
    Simulation,
    assign_outputs,
)

SIGMA2 = (0.0, 0.1, 1.0, 5.0, 10.0)
SIMULATIONS = [RegressionSimulation(repetitions=8), ClassificationSimulation(repetitions=8, sigma1=0.3)]


def of_kind(simulation: Simulation) -> str:
    return str(simulation.options()["kind"])


def run(simulation: Simulation, seed: int = 0) -> pa.Table:
    return simulation.run(np.random.default_rng(seed))


def column(table: pa.Table, estimator: str, name: str) -> np.ndarray:
    chosen = table.filter(pc.equal(table["estimator"], estimator))
    return np.array(chosen[name].to_pylist(), np.float64)


def as_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table.combine_chunks())
    return sink.getvalue().to_pybytes()


@pytest.fixture(scope="module")
def regression() -> pa.Table:
    return run(RegressionSimulation(repetitions=200))


@pytest.fixture(scope="module")
def classification() -> pa.Table:
    # Twice the paper's noise: the oracle errs more often, and the figures scatter less.
    return run(ClassificationSimulation(repetitions=400, sigma1=0.2, n_test=500))


def test_each_output_goes_to_the_member_that_predicts_it_best() -> None:
    X = np.array([0.0, 1.0, 5.0, 2.0, -2.0, 9.0]).reshape(1, 2, 3, 1)
    Z = np.array([0.9, 4.0, 1.2, 0.5, -1.0, 6.0]).reshape(1, 2, 3, 1)
    # Several outputs may choose one member: 0.9 and 1.2 both lie nearest to 1, and no output chooses 0.
    assert assign_outputs(X, Z, np.ones((1, 1, 1))).tolist() == [[[1, 2, 1], [0, 1, 2]]]


def test_outputs_as_near_to_two_members_go_to_the_first() -> None:
    X, Z = np.array([3.0, 1.0, 1.0]).reshape(1, 1, 3, 1), np.array([2.0, 1.0, 0.0]).reshape(1, 1, 3, 1)
    assert assign_outputs(X, Z, np.ones((1, 1, 1))).tolist() == [[[0, 1, 1]]]


def test_estimators_of_two_groups_worked_by_hand() -> None:
    X = np.array([1.0, 3.0, 2.0, 4.0]).reshape(1, 2, 2, 1)
    Z = np.array([4.5, 5.5, 4.0, 8.0]).reshape(1, 2, 2, 1)
    found = Estimates.of(X, Z)
    # Sums: x = 4, 6 and z = 10, 12. With 28/13, the output 4.5 is predicted better by x = 3 (6.46) than by its own 1
    # (2.15).
    assert found.noas.item() == pytest.approx((4 * 10 + 6 * 12) / (16 + 36))
    assert found.assigned.item() == pytest.approx((3 * 4.5 + 3 * 5.5 + 2 * 4 + 4 * 8) / (9 + 9 + 4 + 16))
    assert found.oracle.item() == pytest.approx((1 * 4.5 + 3 * 5.5 + 2 * 4 + 4 * 8) / (1 + 9 + 4 + 16))
    assert found.accuracy.item() == 0.75


def test_batched_estimators_equal_plain_loops() -> None:
    rng = np.random.default_rng(5)
    X, Z = rng.normal(size=(3, 9, 4, 2)), rng.normal(size=(3, 9, 4, 3))
    found = Estimates.of(X, Z)
    for repetition, (x, z) in enumerate(zip(X, Z, strict=True)):
        noas = np.linalg.lstsq(x.sum(axis=1), z.sum(axis=1))[0]
        pairs = [
            (j, i, int(np.linalg.norm(z[j, i] - x[j] @ noas, axis=1).argmin())) for j, i in product(range(9), range(4))
        ]
        assigned = np.linalg.lstsq(np.array([x[j, best] for j, _, best in pairs]), z.reshape(36, 3))[0]
        oracle = np.linalg.lstsq(x.reshape(36, 2), z.reshape(36, 3))[0]
        np.testing.assert_allclose(found.noas[repetition], noas, rtol=1e-9)
        np.testing.assert_allclose(found.assigned[repetition], assigned, rtol=1e-9)
        np.testing.assert_allclose(found.oracle[repetition], oracle, rtol=1e-9)
        assert found.accuracy[repetition] == np.mean([i == best for _, i, best in pairs])


@given(st.integers(0, 2**32 - 1))
def test_the_order_of_outputs_in_a_group_matters_to_the_oracle_only(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, Z = rng.normal(size=(2, 8, 5, 2)), rng.normal(size=(2, 8, 5, 2))
    shuffled = rng.permuted(np.broadcast_to(np.arange(5)[:, None], Z.shape), axis=2)[..., :1]
    one, other = Estimates.of(X, Z), Estimates.of(X, np.take_along_axis(Z, shuffled, axis=2))
    np.testing.assert_allclose(one.noas, other.noas, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(one.assigned, other.assigned, rtol=1e-6, atol=1e-9)


def test_without_assignment_the_error_tends_to_root_g_times_the_oracles(regression: pa.Table) -> None:
    ratio = column(regression, "noas", "ratio_to_oracle")
    assert (np.diff(ratio) > 0).all()
    assert ratio[-1] == pytest.approx(np.sqrt(10), rel=0.05)


def test_with_assignment_the_error_tends_to_the_oracles(regression: pa.Table) -> None:
    ratio, accuracy = column(regression, "as", "ratio_to_oracle"), column(regression, "as", "assignment_accuracy")
    assert ratio[-1] == pytest.approx(1.0, abs=0.01)
    assert (np.diff(accuracy) > 0).all()


def test_assignment_harms_in_tight_groups_and_helps_in_mixed_ones(regression: pa.Table) -> None:
    noas, assigned = column(regression, "noas", "ratio_to_oracle"), column(regression, "as", "ratio_to_oracle")
    assert (assigned[1:3] > 1.2 * noas[1:3]).all()
    assert (assigned[3:] < noas[3:] / 2).all()


def test_regression_gives_the_figures_of_an_independent_run(regression: pa.Table) -> None:
    # Figures of another program, from 40 repetitions. Tolerance: 3 standard deviations of such a run, and rounding;
    # over 60 seeds they are, for noas 0, .0025, .022, .067, .072; for as 0, .015, .035, .007, .001; for the accuracy
    # 0, .0015, .005, .002, .0003.
    expected = {
        ("noas", "ratio_to_oracle"): ([1.00, 1.01, 1.42, 2.93, 3.28], [0.005, 0.013, 0.07, 0.205, 0.22]),
        ("as", "ratio_to_oracle"): ([1.00, 1.26, 1.95, 1.04, 1.00], [0.005, 0.05, 0.11, 0.026, 0.01]),
        ("as", "assignment_accuracy"): ([0.10, 0.12, 0.41, 0.97, 1.00], [0.005, 0.01, 0.02, 0.01, 0.006]),
    }
    for (estimator, name), (figures, tolerance) in expected.items():
        assert (np.abs(column(regression, estimator, name) - figures) <= tolerance).all(), (estimator, name)


def test_error_without_assignment_is_the_exact_expectation_of_gaussian_sums(regression: pa.Table) -> None:
    mean, std = column(regression, "noas", "error_mean"), column(regression, "noas", "error_std")
    # The sums of m = 100 groups have variance g^2 (1 + sigma2^2 / g), their noise g; an inverse Wishart's mean follows.
    expected = 1.0 / (10 * (1.0 + np.square(SIGMA2) / 10) * (100 - 10 - 1))
    np.testing.assert_allclose(np.square(mean) + np.square(std), expected, rtol=0.08)


def test_assignment_gains_in_mixed_groups_and_little_in_pure_ones(classification: pa.Table) -> None:
    gain = column(classification, "noas", "error_mean") / column(classification, "as", "error_mean")
    assert (gain > 1).all()
    assert gain[0] > 1.15
    assert gain[-1] < 1.1
    assert (column(classification, "as", "ratio_to_oracle") > 1.1).all()


@pytest.mark.parametrize("purity", [0.0, 1.0, 3.0])
def test_labels_of_a_group_follow_the_stated_mix(purity: float) -> None:
    simulation = ClassificationSimulation(sigma1=0.001, n_rows=10_000, n_labels=4)
    _, Z = simulation.draw(10, np.random.default_rng(2)).data(purity)
    weights = np.array([np.exp(purity), 1.0, 1.0, 1.0]) / (3 + np.exp(purity))
    counts = Z.sum(axis=2)
    alike = (counts * (counts - 1)).sum(axis=2).mean() / (10 * 9)
    assert alike == pytest.approx(np.square(weights).sum(), abs=0.01)
    np.testing.assert_allclose(Z.mean(axis=(0, 1, 2)), 0.25, atol=0.02)


def test_label_noise_makes_even_the_oracle_err() -> None:
    quiet, noisy = (
        column(run(ClassificationSimulation(repetitions=5, sigma_noise=noise, purity=(0.0,))), "oracle", "error_mean")
        for noise in (0.0, 1.0)
    )
    assert quiet < 0.05
    assert noisy > 0.3


def test_the_ratio_to_an_oracle_without_error_is_null() -> None:
    table = run(ClassificationSimulation(sigma1=0.001, repetitions=3, purity=(0.0,)))
    assert column(table, "oracle", "error_mean") == 0
    assert table["ratio_to_oracle"].to_pylist() == [None] * 3


@pytest.mark.parametrize("simulation", SIMULATIONS, ids=of_kind)
def test_rows_are_every_value_and_estimator_in_order(simulation: Simulation) -> None:
    table = run(simulation)
    assert list(zip(*(table[name].to_pylist() for name in ("value", "estimator")), strict=True)) == list(
        product(SIGMA2, ESTIMATORS)
    )
    assert set(table["setting"].to_pylist()) == {"sigma2" if simulation is SIMULATIONS[0] else "purity"}
    known = [accuracy is not None for accuracy in table["assignment_accuracy"].to_pylist()]
    assert known == [estimator == "as" for estimator in table["estimator"].to_pylist()]
    assert (column(table, "oracle", "ratio_to_oracle") == 1).all()


@pytest.mark.parametrize("simulation", SIMULATIONS, ids=of_kind)
def test_one_seed_gives_the_same_bytes_for_any_number_of_threads(simulation: Simulation) -> None:
    with threadpool_limits(1):
        first = as_bytes(run(simulation, seed=3))
    with threadpool_limits(2):
        assert as_bytes(run(simulation, seed=3)) == first
    assert as_bytes(run(simulation, seed=4)) != first


@pytest.mark.parametrize("simulation", SIMULATIONS, ids=of_kind)
def test_groups_of_one_make_all_estimators_the_oracle(simulation: Simulation) -> None:
    table = run(simulation.model_copy(update={"group_size": 1, "n_rows": 100}))
    oracle = column(table, "oracle", "error_mean")
    assert (oracle > 0).all()
    assert (column(table, "noas", "error_mean") == oracle).all()
    assert (column(table, "as", "error_mean") == oracle).all()
    assert (column(table, "as", "assignment_accuracy") == 1).all()


def test_figures_of_a_value_do_not_depend_on_the_others() -> None:
    several, alone = (run(RegressionSimulation(repetitions=10, sigma2=values)) for values in ((0.1, 5.0), (5.0,)))
    assert several.slice(len(ESTIMATORS)).to_pylist() == alone.to_pylist()


def test_progress_ends_at_the_total() -> None:
    steps: list[tuple[int, int]] = []
    RegressionSimulation(repetitions=20).run(
        np.random.default_rng(0), lambda step, total, metrics=None: steps.append((step, total))
    )
    total = steps[0][1]
    assert steps == [(step, total) for step in range(1, total + 1)]
    assert total > 1


def test_sizes_that_do_not_fit_are_refused_with_what_would() -> None:
    with pytest.raises(ValidationError, match=r"multiple of group_size, got 1005 .* nearest below is 1000"):
        RegressionSimulation(n_rows=1005)
    with pytest.raises(ValidationError, match=r"n_rows >= group_size \* \(n_features \+ 2\) = 1200, got 1100"):
        ClassificationSimulation(group_size=100, n_rows=1100)


def test_the_family_is_chosen_by_kind() -> None:
    family: TypeAdapter[Simulation] = TypeAdapter(AnySimulation)
    assert family.validate_python({"kind": "regression"}) == RegressionSimulation()
    assert family.validate_python({"kind": "classification", "purity": [2.0]}).options()["purity"] == [2.0]
