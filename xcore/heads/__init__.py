"""Heads: the last layer of a network, from features to labels. Their cost decides how many labels a network can have.

One module per head with its options and its trained form, both without torch; `fitting` has the parts that need torch.
"""
