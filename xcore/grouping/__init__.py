"""Rows that share labels."""
