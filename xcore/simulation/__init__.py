"""Simulations of the theory."""
