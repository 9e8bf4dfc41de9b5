"""What a report shows, as values."""
