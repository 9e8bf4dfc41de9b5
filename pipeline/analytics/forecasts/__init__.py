"""How fast groups read and logs grow, and when a group will have caught up: the table `forecasts`."""
