"""The ladder of rungs, and every lag as the distance between two rungs, in records, bytes and time."""
