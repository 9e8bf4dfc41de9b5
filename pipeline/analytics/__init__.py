"""Pure DataFrame → DataFrame: nothing here reads, writes or tells the time."""
