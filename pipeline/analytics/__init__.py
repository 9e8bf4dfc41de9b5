"""Pure functions, DataFrame → DataFrame: they read and write no tables and no clock. Rulers are plain Python."""
