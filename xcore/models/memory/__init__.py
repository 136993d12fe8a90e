"""Labels by similarity to training rows and to label names, without training."""

from xcore.models.memory.model import Memory

__all__ = ["Memory"]
