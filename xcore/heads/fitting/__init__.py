"""Heads in training, by torch."""
