"""Sends messages about findings. Only `announce` reads and writes a lake; no other module here needs Spark."""
