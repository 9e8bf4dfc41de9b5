"""Reads the rows of a lake, and makes the values of a report from them."""
