"""Models: options that fit, and fitted models that predict."""
