"""Topics, producers and groups that lag in every way that laglake reports."""
