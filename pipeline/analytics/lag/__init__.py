"""The ladder of rungs, and every lag as the distance of two, in records, bytes and time."""
