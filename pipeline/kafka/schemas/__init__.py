"""Protocol messages that kafka-python does not have, as its JSON loader reads them (KIP-848)."""
