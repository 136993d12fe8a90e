"""Files that `save` methods wrote, read back by what they must hold: JSON by a schema, tables by their columns.

Whatever is wrong with a file is an `ArtifactDamaged` that names the file and the field. Arrays have a module of their
own: `xcore.numeric.checks`.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model

from xcore.errors import ArtifactDamaged

Count: TypeAlias = Annotated[int, Field(ge=0, lt=2**31)]  # ids are int32
Document = TypeVar("Document")


class Described(BaseModel):
    """Base of what a saved thing says about itself in JSON: exactly these fields, of these types, all finite."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


def read_json(path: Path, schema: type[Document]) -> Document:
    """The content of a JSON file as a `schema`: a pydantic model, or any type that pydantic knows."""
    try:
        content: Document = TypeAdapter(schema).validate_json(_content(path))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        where = f"field '{place}'" if place else "the whole"
        raise _damaged(path, f"{where} is wrong: {first['msg']}; got {str(first['input'])[:80]}") from error
    return content


def read_kind(path: Path, kinds: Collection[str]) -> str:
    """The field ``kind`` of a JSON file, which tells what opens the rest; one of `kinds`."""
    kind = read_json(path, _OfKind).kind
    if kind not in kinds:
        raise ArtifactDamaged(
            f"{path}: field 'kind' is {kind!r}, expected one of {sorted(kinds)}; take an artifact of this version"
        )
    return kind


def read_options(path: Path, family: Any) -> Any:
    """The field ``options`` of a JSON file as a member of a family; other fields are not looked at."""
    found: Any = read_json(path, create_model("Saved", options=(family, ...)))
    return found.options


class _OfKind(BaseModel):
    """The field that every saved member of a family has; the loader of the kind looks at the rest."""

    kind: str


def read_table(path: Path, columns: dict[str, pa.DataType]) -> pa.Table:
    """A Parquet file with these columns, of these types and without nulls; other columns are not read."""
    try:
        _require_file(path)
        with pq.ParquetFile(path) as file:
            found = {field.name: field.type for field in file.schema_arrow}
            _check_columns(path, found, columns)
            table = file.read(columns=list(columns))
            table.validate(full=True)
    except (pa.ArrowException, OSError, MemoryError) as error:
        raise _damaged(path, f"it is no whole Parquet file ({error})") from error
    for name in columns:
        column = table[name]
        n_nulls = column.null_count
        if pa.types.is_list(column.type):
            n_nulls += sum(chunk.values.null_count for chunk in column.chunks)
        if n_nulls:
            raise _damaged(path, f"column '{name}' has {n_nulls} nulls, expected none")
    return table


def metadata_of(path: Path, table: pa.Table, schema: type[Document]) -> Document:
    """What the metadata of a table say, as a pydantic model; numbers are there as text."""
    metadata: dict[bytes, bytes] = table.schema.metadata or {}
    said = {key.decode(errors="replace"): value.decode(errors="replace") for key, value in metadata.items()}
    try:
        found: Document = TypeAdapter(schema).validate_strings(said)
    except ValidationError as error:
        first = error.errors()[0]
        raise _damaged(path, f"metadata {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    return found


def _require_file(path: Path) -> None:
    if not path.is_file():  # a pipe would wait for ever
        raise ArtifactDamaged(f"{path} is missing or no file; make the artifact again")


def _content(path: Path) -> bytes:
    _require_file(path)
    try:
        return path.read_bytes()
    except OSError as error:
        raise _damaged(path, f"it cannot be read ({error})") from error


def _check_columns(path: Path, found: dict[str, pa.DataType], expected: dict[str, pa.DataType]) -> None:
    for name, kind in expected.items():
        if name not in found:
            raise _damaged(path, f"it has the columns {sorted(found)}, expected '{name}' among them")
        if found[name] != kind:
            raise _damaged(path, f"column '{name}' is {found[name]}, expected {kind}")


def _damaged(path: Path, problem: str) -> ArtifactDamaged:
    return ArtifactDamaged(f"{path}: {problem}; make the artifact again")
