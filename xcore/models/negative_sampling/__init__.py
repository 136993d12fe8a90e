"""Linear classifiers trained against sampled labels, and the full softmax that they approximate."""

from xcore.models.negative_sampling.fitted import FittedNegativeSampling
from xcore.models.negative_sampling.label_sampler import LabelSampler
from xcore.models.negative_sampling.model import NegativeSampling

__all__ = ["FittedNegativeSampling", "LabelSampler", "NegativeSampling"]
