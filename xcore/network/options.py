"""Options of the network, without torch."""

from __future__ import annotations

from pydantic import Field

from xcore.components import Component
from xcore.heads.family import AnyHead
from xcore.heads.one_hot import OneHot


class NetworkOptions(Component):
    """Shape and training of a feed-forward network."""

    width: int = Field(
        512,
        ge=1,
        description="Number of units in the first layer. Each feature has a vector of this length, so size and "
        "time grow with it.",
    )
    hidden: tuple[int, ...] = Field(
        (), description="Number of units in each further layer, from first to last. Empty: one layer only."
    )
    channels: tuple[int, ...] = Field(
        (16, 32),
        description="Number of channels of each convolution, each followed by pooling of 2 x 2 pixels. Used for "
        "images only.",
    )
    head: AnyHead = Field(
        OneHot(),
        description="The last layer, from features to labels. one-hot: one output per label. mhp, mhc, mhs, g-mhe: "
        "codes for labels, for very many of them.",
    )
    trimmed: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Share of the labels, those with the fewest rows first, that are not learnt. It makes the head "
        "smaller.",
    )
    epochs: int = Field(20, ge=1, description="Maximum number of passes over the training rows.")
    batch_size: int = Field(
        256, ge=1, description="Number of rows per step. It is reduced if an epoch would have fewer than 10 steps."
    )
    learning_rate: float = Field(
        0.002, gt=0, description="Peak learning rate of AdamW. The rate rises to it at the start and then falls to 0."
    )
    weight_decay: float = Field(
        0.01, ge=0, description="Decoupled weight decay of AdamW. It is not applied to biases and norms."
    )
    dropout: float = Field(
        0.3,
        ge=0,
        lt=1,
        description="Share of the units that are switched off in each training step. A higher share regularises more.",
    )
    patience: int = Field(
        5,
        ge=0,
        description="Number of epochs without a better dev score after which training stops. 0, or no dev "
        "split: run all epochs.",
    )
    average_from: float = Field(
        1.0,
        ge=0,
        le=1,
        description="Share of the epochs after which the weights of the remaining epochs are averaged. 1: no "
        "averaging.",
    )
