from __future__ import annotations

from pathlib import Path

import numba
import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from xcore.errors import ConfigError
from xcore.grouping.family import AnyGrouper
from xcore.grouping.given import GivenGroups
from xcore.grouping.groups import Groups
from xcore.grouping.random import RandomGroups
from xcore.grouping.tree import ClusterGroups, MixedGroups
from xcore.numeric.matrices import CSR, csr


def as_csr(dense: object) -> CSR:
    matrix = sp.csr_array(np.asarray(dense, np.float32))
    return csr(matrix.data, matrix.indices, matrix.indptr, matrix.shape[1])


def rows_and_truth(n: int = 103, d: int = 12, n_labels: int = 7, seed: int = 0) -> tuple[CSR, CSR]:
    rng = np.random.default_rng(seed)
    return as_csr(rng.random((n, d)) * (rng.random((n, d)) < 0.5)), as_csr(rng.random((n, n_labels)) < 0.3)


@pytest.mark.parametrize("grouper", [RandomGroups(size=4), ClusterGroups(depth=4), MixedGroups(depth=4)])
def test_made_groups_partition_the_rows_and_count_their_labels(grouper: RandomGroups) -> None:
    X, Y = rows_and_truth()
    groups = grouper.group(X, Y, np.random.default_rng(1))
    assert (groups.members.toarray().sum(axis=0) == 1).all()
    np.testing.assert_array_equal(groups.labels.toarray(), groups.members.toarray() @ Y.toarray())


def test_set_merge_keeps_only_which_labels_occur() -> None:
    X, Y = rows_and_truth()
    listed = RandomGroups(size=10).group(X, Y, np.random.default_rng(1))
    merged = RandomGroups(size=10, merge="set").group(X, Y, np.random.default_rng(1))
    np.testing.assert_array_equal(merged.labels.toarray(), listed.labels.toarray() > 0)
    assert (listed.merge, merged.merge) == ("list", "set")


def test_random_groups_have_the_size_asked_for_and_one_short_remainder() -> None:
    X, Y = rows_and_truth(n=103)
    sizes = RandomGroups(size=10).group(X, Y, np.random.default_rng(0)).sizes
    assert sizes.tolist() == [10] * 10 + [3]


def test_random_groups_mix_the_rows_and_every_seed_mixes_them_differently() -> None:
    X, Y = rows_and_truth(n=100)
    one, other = (RandomGroups(size=10).group(X, Y, np.random.default_rng(seed)).members for seed in (0, 1))
    assert not np.array_equal(one.indices, other.indices)
    assert (np.diff(one.indices.reshape(10, 10)) == 1).mean() < 0.5


def test_clusters_are_balanced_and_find_planted_ones() -> None:
    rng = np.random.default_rng(0)
    centres = np.eye(4) * 5
    planted = rng.permutation(np.repeat(np.arange(4), 25))
    X, Y = as_csr(centres[planted] + rng.random((100, 4))), as_csr(np.eye(4)[planted])
    groups = ClusterGroups(depth=2).group(X, Y, np.random.default_rng(3))
    assert groups.sizes.tolist() == [25] * 4
    assert (groups.labels.toarray().max(axis=1) == 25).all()


def test_more_leaves_than_rows_give_empty_groups_that_are_counted() -> None:
    X, Y = rows_and_truth(n=5)
    counts = ClusterGroups(depth=3).group(X, Y, np.random.default_rng(0)).counts()
    assert counts["groups"] == 8
    assert counts["groups_without_members"] == 3
    assert counts["groups_of_one"] == 5


def test_no_heterogeneity_gives_the_clusters_and_full_heterogeneity_ignores_the_features() -> None:
    planted = np.repeat(np.arange(4), 64)
    X, Y = as_csr(np.eye(4)[planted]), as_csr(np.eye(4)[planted])

    def largest_share(r: float) -> float:
        groups = MixedGroups(depth=3, heterogeneity=r).group(X, Y, np.random.default_rng(0))
        return float(groups.labels.toarray().max(axis=1).mean() / 32)

    clusters = ClusterGroups(depth=3).group(X, Y, np.random.default_rng(0))
    unmixed = MixedGroups(depth=3, heterogeneity=0).group(X, Y, np.random.default_rng(0))
    assert (clusters.members != unmixed.members).nnz == 0
    assert largest_share(0) > 0.9
    assert largest_share(1) < 0.5


def test_clusters_do_not_depend_on_the_number_of_threads() -> None:
    X, Y = rows_and_truth(n=300)
    made = []
    for n_threads in (1, numba.config.NUMBA_NUM_THREADS):
        numba.set_num_threads(n_threads)
        made.append(ClusterGroups(depth=5).group(X, Y, np.random.default_rng(0)).members.indices)
    np.testing.assert_array_equal(*made)


def table(members: list[list[int]], labels: list[list[int]], counts: list[list[int]] | None = None) -> pa.Table:
    lists = pa.list_(pa.int32())
    columns = {"members": pa.array(members, lists), "labels": pa.array(labels, lists)}
    return pa.table(columns | ({} if counts is None else {"counts": pa.array(counts, lists)}))


def given_groups(given: pa.Table, n: int = 6, n_labels: int = 4, merge: str = "list") -> Groups:
    X, Y = sp.csr_array((n, 2), dtype=np.float32), sp.csr_array((n, n_labels), dtype=np.float32)
    return GivenGroups.model_validate({"merge": merge}).group(X, Y, np.random.default_rng(0), given)


def test_given_groups_may_overlap_and_every_oddity_is_counted() -> None:
    groups = given_groups(
        table([[3, 1, 1], [], [1, 2], [4]], [[2, 0], [1], [], [0, 1, 2]], [[5, 1], [1], [], [1, 1, 1]])
    )
    assert groups.members.toarray()[0].tolist() == [0, 1, 0, 1, 0, 0]
    counts = groups.counts()
    expected = {
        "duplicate_members_removed": 1,
        "groups_without_members": 1,
        "groups_without_labels": 1,
        "groups_of_one": 1,
        "groups_with_more_labels_than_members": 2,
        "rows_in_no_group": 2,
        "rows_in_several_groups": 1,
        "labels_in_no_group": 1,
        "label_counts_above_group_size": 1,
    }
    assert {key: counts[key] for key in expected} == expected


def test_given_groups_without_counts_count_each_label_once_and_add_up_repeats() -> None:
    groups = given_groups(table([[0, 1]], [[2, 2, 3]]))
    assert groups.labels.toarray().tolist() == [[0, 0, 2, 1]]
    assert given_groups(table([[0, 1]], [[2, 2, 3]]), merge="auto").merge == "list"
    assert given_groups(table([[0, 1]], [[2, 3]]), merge="auto").merge == "set"
    assert given_groups(table([[0, 1]], [[2, 2, 3]]), merge="set").labels.toarray().tolist() == [[0, 0, 1, 1]]


def test_wrong_groups_are_refused_with_what_to_do() -> None:
    with pytest.raises(ConfigError, match="needs groups in the dataset"):
        GivenGroups().group(*rows_and_truth(), np.random.default_rng(0))
    with pytest.raises(ConfigError, match="members of the groups must be ids from 0 to 5, got 0 to 6"):
        given_groups(table([[0, 6]], [[1]]))
    with pytest.raises(ConfigError, match="labels of the groups must be ids from 0 to 3, got -1 to 1"):
        given_groups(table([[0]], [[1, -1]]))
    with pytest.raises(ConfigError, match="whole numbers of at least 1, got 0"):
        given_groups(table([[0]], [[1]], [[0]]))
    with pytest.raises(ConfigError, match=r"whole numbers of at least 1, got 1\.5 to 1\.5"):
        Groups(as_csr([[1, 1]]), as_csr([[1.5]]))
    with pytest.raises(ConfigError, match="2 labels but 1 counts"):
        given_groups(table([[0]], [[1, 2]], [[1]]))


def test_a_grouper_is_chosen_by_kind_and_bounded() -> None:
    adapter: TypeAdapter[object] = TypeAdapter(AnyGrouper)
    assert adapter.validate_python({"kind": "random", "size": 10}) == RandomGroups(size=10)
    for wrong in ({"kind": "random", "size": 0}, {"kind": "mixed", "heterogeneity": 1.5}, {"kind": "other"}):
        with pytest.raises(ValidationError):
            adapter.validate_python(wrong)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.lists(st.integers(0, 8), max_size=6), st.lists(st.integers(0, 4), max_size=4)), max_size=6),
    st.sampled_from(["list", "set"]),
)
def test_saved_groups_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, given_lists: list[tuple[list[int], list[int]]], merge: str
) -> None:
    folder: Path = tmp_path_factory.mktemp("groups")
    lists = table([members for members, _ in given_lists], [labels for _, labels in given_lists])
    groups = given_groups(lists, n=9, n_labels=5, merge=merge)
    groups.save(folder)
    read = Groups.load(folder)
    assert read.counts() == groups.counts()
    assert read.merge == groups.merge
    for name in ("members", "labels"):
        old, new = getattr(groups, name), getattr(read, name)
        assert old.shape == new.shape
        np.testing.assert_array_equal(old.toarray(), new.toarray())
