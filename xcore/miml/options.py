"""Options of networks over bags, without torch."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import Field

from xcore.components import Component

BagLoss: TypeAlias = Literal["logistic", "softmax", "proportion", "count"]


class MimlOptions(Component):
    """Shape and training of a network over bags."""

    width: int = Field(
        128, ge=1, lt=2**24, description="Number of hidden units. Size and time of the network grow with it."
    )
    concepts: int = Field(
        5,
        ge=1,
        lt=2**16,
        description="Number of concepts per label. The best concept of a row counts. More concepts can tell more "
        "kinds of rows apart; size and time grow with them.",
    )
    loss: BagLoss = Field(
        "logistic",
        description="How bags are compared with their labels. logistic: the best row of the bag decides, each label "
        "is an independent yes or no; softmax: the same, but labels share one distribution; proportion: the mean of "
        "the rows' distributions is compared with the shares of the labels; count: the exact likelihood of the "
        "number of rows that carry each label.",
    )
    epochs: int = Field(20, ge=1, description="Maximum number of passes over the bags.")
    batch_size: int = Field(
        256,
        ge=1,
        description="Number of rows per step, in whole bags of average size. It is reduced if an epoch would have "
        "fewer than 10 steps.",
    )
    learning_rate: float = Field(
        0.002, gt=0, description="Peak learning rate of AdamW. The rate rises to it at the start and then falls to 0."
    )
    weight_decay: float = Field(0.01, ge=0, description="Decoupled weight decay of AdamW. It is not applied to biases.")
    patience: int = Field(
        5,
        ge=0,
        description="Number of epochs without a better dev score after which training stops. 0, or no dev "
        "split: run all epochs.",
    )
