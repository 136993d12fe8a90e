"""Linear classifiers trained against sampled labels, and the full softmax that they approximate."""

from xcore.models.negative_sampling.model import FittedNegativeSampling, NegativeSampling
from xcore.models.negative_sampling.parts import LabelSampler, Parts, Watched

__all__ = ["FittedNegativeSampling", "LabelSampler", "NegativeSampling", "Parts", "Watched"]
