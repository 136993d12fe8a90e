"""Search among many vectors: exact, or through a graph."""
