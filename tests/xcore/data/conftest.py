from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xcore.components import silent
from xcore.data.dataset import Dataset
from xcore.data.ingest import BLOCK_BYTES, ingest
from xcore.data.source import Source

Ingested = Callable[..., tuple[Dataset, dict[str, Any]]]


@pytest.fixture
def ingested(tmp_path: Path) -> Ingested:
    """Ingest a source given by its fields, each time into a new directory; no rows are held out unless asked for."""
    numbers = count()

    def run(*, block_bytes: int = BLOCK_BYTES, seed: int = 0, **fields: Any) -> tuple[Dataset, dict[str, Any]]:
        directory = tmp_path / f"dataset-{next(numbers)}"
        directory.mkdir()
        source = Source.model_validate({"holdout": {"test": 0}} | fields)
        counts = ingest(source, directory, np.random.default_rng(seed), silent, block_bytes=block_bytes)
        return Dataset(directory), counts

    return run
