"""How good a ranking is: precision, nDCG, their propensity-scored forms, recall, coverage, accuracy, with intervals.

Conventions, the same as in the Extreme Classification Repository and in napkinXC:

- Every row counts. A row without a true label scores 0 in precision, nDCG and recall, and adds nothing to either side
  of the propensity-scored metrics. ``Evaluation.n_unlabelled`` says how many there are.
- A place that holds ``NO_LABEL`` is a miss: precision at k divides by k however many labels were offered.
- Propensity-scored metrics are a ratio of sums over rows: what the ranking gained by what the best ranking would gain.
- Stored entries of the truth are the true labels, whatever their value.

Head, torso and tail are thirds of the training label mass (`thirds_of_mass`). Precision, nDCG, PSP and PSnDCG of a
third count the hits on its labels only and keep the divisor of the whole, so that the three parts *add up* to it.
Recall of a third is the mean over rows that have a label in it, and coverage looks at its labels alone: these are
rates *within* the third. A rate with nothing to count is ``nan``.

Each metric is a file with a `RowMetric` or a `LabelMetric`. `xcore.metrics.family` lists them all: evaluation, pages,
promotion and studies take names, titles, units and order from there.
"""

from xcore.metrics.bootstrap import Comparison, paired_bootstrap
from xcore.metrics.frequency import THIRDS, propensities, thirds_of_mass
from xcore.metrics.log_likelihood import log_probabilities
from xcore.metrics.ranking import Evaluation, evaluate, measurable, row_values

__all__ = [
    "THIRDS",
    "Comparison",
    "Evaluation",
    "evaluate",
    "log_probabilities",
    "measurable",
    "paired_bootstrap",
    "propensities",
    "row_values",
    "thirds_of_mass",
]
