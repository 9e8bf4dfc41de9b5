"""Pure functions, DataFrame → DataFrame: no reads, writes or clock. One partition's ruler is plain Python."""
