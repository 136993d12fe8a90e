"""Label subset selection: a few labels that stand for all, the labels that nothing stands for, and the map between."""
