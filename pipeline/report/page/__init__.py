"""The page: templates, scripts, and the data in it."""
