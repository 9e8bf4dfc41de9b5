"""What is drawn: lines, heat maps, forecasts, events and limits."""
