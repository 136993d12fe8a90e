"""Arrays, threads and compiled building blocks that the methods share."""
