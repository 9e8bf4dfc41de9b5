"""The ruler of each log, built from successive snapshots: offset → position in bytes, offset → timestamp."""
