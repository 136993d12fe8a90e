"""How things learn: the data and the context of a fit, stages before a model, checkpoints, and the torch loop."""
