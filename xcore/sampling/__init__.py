"""Dense projections of features, and samplers of labels: uniform, by frequency, and a tree that mimics the data."""
