"""What people see of a model: its learning curves while it trains."""

from __future__ import annotations

from xcore.views.base import View


class ModelView(View):
    """A trained model."""

    def progress_group(self, name: str) -> str:
        return "train" if name == "model" else f"train/{name}"
