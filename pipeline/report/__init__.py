"""The report about a lake. `write` writes it; this module imports nothing, because jobs need small parts at once."""
