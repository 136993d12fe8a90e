"""A feed-forward network over sparse or dense rows; the parts that need torch are loaded only to train."""
