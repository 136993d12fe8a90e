"""What people see of label embeddings: of images, a picture of each label."""

from __future__ import annotations

from pathlib import Path

from xcore.artifacts import Artifact
from xcore.views.base import View


class LabelEmbeddingsView(View):
    """Embeddings of labels in the space of the rows."""

    shown_with_result = True

    def draw(self, artifact: Artifact, folder: Path) -> None:
        from xcore.imputation.label_embeddings import FittedLabelEmbeddings
        from xcore.report.plots import draw_embeddings

        found = FittedLabelEmbeddings.load(artifact.directory)
        if found.image_shape is not None:
            draw_embeddings(found.vectors, found.image_shape, folder / f"label_embeddings_{artifact.ref.id[:8]}.png")
