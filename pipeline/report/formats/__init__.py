"""The whole report in other formats than the page: Markdown, JSON and CSV, lines for a terminal, and its values."""
