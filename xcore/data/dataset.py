"""A dataset on disk, as `ingest` writes it and everything after reads it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from xcore.data.feature_files import FeatureFile, FeatureSplits, Images, read_csr
from xcore.data.readers.base import SPLITS, Form, Split
from xcore.errors import ArtifactDamaged, ConfigError
from xcore.numeric.matrices import CSR, binary_csr, list_parts

FORMAT = 1
LABEL_LISTS = pa.field("labels", pa.list_(pa.int32()))

# What the label counts of groups are: how many members carry the label, or always 1, for only the set is known.
Merge: TypeAlias = Literal["list", "set"]


@dataclass(frozen=True)
class BagTable:
    """Rows that belong together.

    Attributes
    ----------
    ids : list of str
        What the files call the bags.
    members : CSR (number of bags, rows of the split)
        1 where a row is in a bag. Bags of train may overlap, and a row may be in none.
    """

    ids: list[str]
    members: CSR


class Dataset(FeatureSplits):
    """Opens a dataset; nothing but its description is read until asked for.

    Parameters
    ----------
    directory : Path
        What `xcore.data.ingest.ingest` filled.

    Attributes
    ----------
    form : 'sparse', 'text', 'vector' or 'image'
        What the features are.
    n_labels, n_features : int
        Sizes of the spaces; text has no features yet, so 0; an image has one for each byte.
    image_shape : (height, width, channels) or None
        Of all images, where the form is image.
    splits : list of str
        Those of train, dev and test that there are.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        try:
            described = json.loads((directory / "dataset.json").read_text())
        except (OSError, ValueError) as error:
            raise ArtifactDamaged(f"{directory} holds no dataset: {error}; expected what ingest writes") from None
        if described["format"] != FORMAT:
            raise ArtifactDamaged(
                f"{directory} has dataset format {described['format']}, expected {FORMAT}: ingest the source again"
            )
        self.form: Form = described["form"]
        self.n_labels, self.n_features = int(described["n_labels"]), int(described["n_features"])
        self.n_label_features: int | None = described["n_label_features"]
        shape = described.get("image_shape")
        self.image_shape: tuple[int, int, int] | None = None if shape is None else (shape[0], shape[1], shape[2])
        self._sizes: dict[str, dict[str, int]] = described["splits"]
        self.splits: list[Split] = [split for split in SPLITS if split in self._sizes]

    def n_rows(self, split: Split) -> int:
        """How many rows a split has."""
        return self._size(split)["rows"]

    def need_split(self, split: Split, wanted_by: str) -> None:
        """Raise `ConfigError` unless there is such a split; `wanted_by` is the option that asks for it."""
        if split not in self._sizes:
            raise ConfigError(
                f"{wanted_by} is {split}, but the dataset {self.directory.name} has no {split} split, only "
                f"{', '.join(self.splits)}: name one of these, or ingest with {split} files or data.holdout.{split}"
            )

    def features(self, split: Split) -> FeatureFile:
        """The features of a split, to be read as `sparse`, `dense`, `images` or `blocks`."""
        size, path = self._size(split), self.directory / f"{split}.parquet"
        return FeatureFile(path, self.form, size["rows"], self.n_features, size["nnz"], self.image_shape)

    def images(self, split: Split) -> Images:
        """Images, uint8 (n, height, width, channels)."""
        return self.features(split).images()

    def Y(self, split: Split) -> CSR:
        """Labels, CSR with entries 1 (n, n_labels); empty for all train rows if labels belong to groups."""
        return self._label_lists(f"{split}.parquet", split)

    def truth(self, split: Split) -> CSR | None:
        """The rows' own labels where only their groups' labels may be learnt from; None where they are not known."""
        name = f"{split}_truth.parquet"
        return self._label_lists(name, split) if (self.directory / name).exists() else None

    def own_labels(self, split: Split) -> CSR:
        """The rows' own labels, if known: the stored truth if labels belong to groups, else `Y`."""
        truth = self.truth(split)
        return self.Y(split) if truth is None else truth

    def text_blocks(self, split: Split, block: int = 8192) -> Iterator[pa.StringArray]:
        """The texts in order, at most `block` rows at a time; memory is one row group."""
        if self.form != "text":
            raise ConfigError(f"{self.directory} holds {self.form} rows, not text")
        self._size(split)
        with pq.ParquetFile(self.directory / f"{split}.parquet") as file:
            for batch in file.iter_batches(batch_size=block, columns=["text"]):
                yield batch.column(0)

    def row_ids(self, split: Split) -> pa.ChunkedArray:
        """The rows' ids (strings)."""
        self._size(split)
        return pq.read_table(self.directory / f"{split}_rows.parquet")["id"]

    def label_table(self) -> pa.Table:
        """``id``, ``name``, ``parents`` and ``train_count`` of each label, in the order of their numbers."""
        return pq.read_table(self.directory / "labels.parquet")

    def label_texts(self) -> list[str]:
        """A text for each label, in the order of their numbers: its name, or its id where it has no name."""
        table = self.label_table()
        return [name or key for name, key in zip(table["name"].to_pylist(), table["id"].to_pylist(), strict=True)]

    def label_features(self) -> CSR | None:
        """Features of the labels (n_labels, n_label_features), where the source has them."""
        if self.n_label_features is None:
            return None
        path = self.directory / "label_features.parquet"
        return read_csr(path, self.n_labels, None, self.n_label_features)

    def groups(self) -> pa.Table | None:
        """``id``, ``members`` (positions in train), ``labels`` and ``counts`` of each group; None without groups.

        The schema's metadata says in ``merge`` what the counts are, see `merge_of`.
        """
        path = self.directory / "groups.parquet"
        return pq.read_table(path) if path.exists() else None

    def bags(self, split: Split) -> BagTable | None:
        """The bags to which the rows of a split belong; None where the files say nothing of bags. Memory O(rows)."""
        rows = self.n_rows(split)
        path = self.directory / ("groups.parquet" if split == "train" else f"{split}_bags.parquet")
        if not path.exists():
            return None
        table = pq.read_table(path, columns=["id", "members"])
        offsets, members = list_parts(table["members"])
        return BagTable(table["id"].to_pylist(), binary_csr(members, offsets, rows))

    def quarantine(self) -> pa.Table | None:
        """The rows that were set aside, with the reason; None where there are none."""
        path = self.directory / "quarantine.parquet"
        return pq.read_table(path) if path.exists() else None

    def _label_lists(self, name: str, split: Split) -> CSR:
        self._size(split)
        offsets, labels = list_parts(pq.read_table(self.directory / name, columns=["labels"])["labels"])
        return binary_csr(labels, offsets, self.n_labels)

    def _size(self, split: Split) -> dict[str, int]:
        if split not in self._sizes:
            raise ConfigError(f"{self.directory} has no {split} split, only {', '.join(self._sizes)}")
        return self._sizes[split]


def merge_of(groups: pa.Table) -> Merge | None:
    """What the metadata of a table of groups says about its counts; None where it says nothing."""
    said = (groups.schema.metadata or {}).get(b"merge")
    return None if said is None else "set" if said == b"set" else "list"
