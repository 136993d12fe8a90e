"""What the report of a run shows beside its artifacts: the champion of its experiment, and how its model learnt."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.model_versions import MODEL_TAG, champion, run_metrics, source_run
from tasks.tracking import TrackedRun, curves_of
from tasks.tracking_client import tracking_client
from xcore.artifacts import Artifact
from xcore.report.beside import Beside, Champion
from xcore.report.run import Run


def beside_of(run: TrackedRun, lineage: Sequence[Artifact]) -> Beside:
    """What the tracking server knows at this moment. A model that was made before has the curves of its first run."""
    run.flush()
    client, made = tracking_client(), Run(lineage)
    name = client.get_experiment(run.experiment_id).name
    first = source_run(name, made["model"].ref) or run.id
    return Beside(_champion(name, made), curves_of(client, first), name)


def _champion(name: str, made: Run) -> Champion | None:
    current = champion(name)
    if current is None:
        return None
    metrics = run_metrics(current)
    own = {key.removeprefix(f"{made.split}/"): value for key, value in metrics.items()}
    return Champion(
        str(current),
        own,
        same_rows=current.tags.get("eyrie.dataset") == made["dataset"].ref.id,
        is_this=current.tags[MODEL_TAG] == made["model"].ref.id,
    )
