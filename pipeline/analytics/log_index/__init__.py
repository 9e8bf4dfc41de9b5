"""Each log as a ruler: offset → position in bytes, offset → timestamp, from successive snapshots."""
