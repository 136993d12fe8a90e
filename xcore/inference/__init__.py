"""Trained models on new rows: scoring, and comparison with the model in use."""
