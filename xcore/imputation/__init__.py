"""Imputers: labels of rows from labels of groups."""
