from pathlib import Path

import pytest

from tests.workplace import Workplace


@pytest.fixture
def workplace(tmp_path: Path, prefect_server: str) -> Workplace:
    return Workplace(tmp_path / "home", PREFECT_API_URL=prefect_server)
