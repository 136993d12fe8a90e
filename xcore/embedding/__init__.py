"""Dense vectors of rows, by maps that are fitted on training rows."""
