"""The families of readers, one member for each file format: for data to learn from, and for rows to score.

Side tables (labels, groups) use the functions that read a table of their format.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import Field

from xcore.data.readers.csv import CsvReader, csv_records
from xcore.data.readers.generated import GeneratedReader
from xcore.data.readers.idx import IdxReader
from xcore.data.readers.jsonl import JsonlReader, json_lines
from xcore.data.readers.libsvm import LibsvmReader
from xcore.data.readers.npz import NpzReader
from xcore.data.readers.parquet import BYTES_A_ROW, ParquetReader, column_names, table_batches
from xcore.data.readers.sparse_parquet import SparseParquetReader
from xcore.data.readers.xmc import XmcReader
from xcore.data.readers.xmc_split import XmcSplitReader

__all__ = ["BYTES_A_ROW", "AnyReader", "AnyRowReader", "column_names", "csv_records", "json_lines", "table_batches"]

AnyReader: TypeAlias = Annotated[
    XmcReader
    | XmcSplitReader
    | LibsvmReader
    | NpzReader
    | ParquetReader
    | JsonlReader
    | CsvReader
    | IdxReader
    | GeneratedReader,
    Field(discriminator="kind"),
]

AnyRowReader: TypeAlias = Annotated[
    ParquetReader | JsonlReader | CsvReader | XmcReader | LibsvmReader | SparseParquetReader,
    Field(discriminator="kind"),
]
