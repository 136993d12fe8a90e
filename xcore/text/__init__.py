"""Featurisers: text becomes rows of numbers."""
