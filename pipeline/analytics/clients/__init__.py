"""What clients report about themselves: their positions, whether their lag metric is right, and their problems."""
