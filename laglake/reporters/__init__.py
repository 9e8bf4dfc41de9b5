"""What an application in Python adds to its consumers, so that laglake can read from files how far they have read.

They need the standard library alone, and kafka_python.py kafka-python: laglake may be installed with `--no-deps`.
"""
