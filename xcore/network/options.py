"""Options of the network, without torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from xcore.components import Component


class NetworkOptions(Component):
    """Shape and training of a feed-forward network."""

    width: int = Field(512, ge=1, description="Units of the first layer, into which every feature has a vector.")
    hidden: tuple[int, ...] = Field((), description="Units of further layers, from the first to the last.")
    loss: Literal["logistic", "softmax"] = Field(
        "logistic",
        description="logistic: each label is judged alone; softmax: the labels of a row share one distribution.",
    )
    epochs: int = Field(20, ge=1, description="Most passes over the training rows.")
    batch_size: int = Field(256, ge=1, description="Rows per step; fewer if an epoch has less than 10 steps.")
    learning_rate: float = Field(0.002, gt=0, description="Highest learning rate of AdamW.")
    weight_decay: float = Field(0.01, ge=0, description="Decoupled weight decay; biases and norms do not decay.")
    dropout: float = Field(0.3, ge=0, lt=1, description="Share of the units switched off in each training step.")
    patience: int = Field(
        5, ge=0, description="Stop after this many epochs without a better dev score; 0 runs all epochs."
    )
    average_from: float = Field(
        1.0,
        ge=0,
        le=1,
        description="Share of the epochs after which weights are averaged over epochs; 1 does not average.",
    )
