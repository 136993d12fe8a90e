"""Multi-instance multi-label networks: what bags of rows carry; the parts that need torch are loaded only to train."""
