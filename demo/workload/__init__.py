"""Topics, producers and groups that lag in every way that the product reports."""
