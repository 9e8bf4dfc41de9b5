"""What clients report of themselves: their positions, whether their lag metric is right, what is wrong with them."""
