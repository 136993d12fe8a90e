"""A model in front of any other one: it trains on a subset of the labels and reconstructs the rest."""
