"""Topics, producers and groups that lag in different ways."""
