"""What needs attention: a card for each group with a problem, and for each cause."""
