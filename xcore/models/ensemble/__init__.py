"""Several models whose scores are added up."""

from xcore.models.ensemble.model import Ensemble, Member

__all__ = ["Ensemble", "Member"]
