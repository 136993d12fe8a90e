"""Labels by similarity that is trained: an encoder of rows and label texts, and a classifier for each label."""

from xcore.models.siamesexml.model import SiameseXml

__all__ = ["SiameseXml"]
