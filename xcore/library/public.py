"""The names of the library. ``import xcore`` loads this module when the first of them is used."""

from xcore.embedding.network_features import NetworkFeatures
from xcore.embedding.pca import Pca
from xcore.errors import ConfigError, EyrieError
from xcore.grouping.groups import Groups
from xcore.imputation.auto import Auto
from xcore.imputation.base import Imputer
from xcore.imputation.baseline import Baseline
from xcore.imputation.disaggregate import Disaggregate
from xcore.imputation.eagle import Eagle
from xcore.imputation.imputed import Imputed
from xcore.library.classifier import Classifier
from xcore.library.label_imputer import LabelImputer
from xcore.models.base import Fitted, Model
from xcore.models.ensemble.model import Ensemble, Member
from xcore.models.label_subset.model import LabelSubset
from xcore.models.memory.model import Memory
from xcore.models.miml import CoAttention, DeepMiml
from xcore.models.negative_sampling.model import NegativeSampling
from xcore.models.network import NeuralNetwork
from xcore.models.omikuji import Omikuji
from xcore.models.ova import Ova
from xcore.models.parabel.model import Parabel
from xcore.models.siamesexml.model import SiameseXml
from xcore.numeric.matrices import TopK
from xcore.sampling.sampler import Tree
from xcore.selection.options import LabelSelection
from xcore.training.data import Bags, LabelSide

__all__ = [
    "Auto",
    "Bags",
    "Baseline",
    "Classifier",
    "CoAttention",
    "ConfigError",
    "DeepMiml",
    "Disaggregate",
    "Eagle",
    "Ensemble",
    "EyrieError",
    "Fitted",
    "Groups",
    "Imputed",
    "Imputer",
    "LabelImputer",
    "LabelSelection",
    "LabelSide",
    "LabelSubset",
    "Member",
    "Memory",
    "Model",
    "NegativeSampling",
    "NetworkFeatures",
    "NeuralNetwork",
    "Omikuji",
    "Ova",
    "Parabel",
    "Pca",
    "SiameseXml",
    "TopK",
    "Tree",
]
