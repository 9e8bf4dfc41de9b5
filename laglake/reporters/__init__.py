"""Reporters that a Python application adds to its consumers. They write positions into files that laglake reads.

They need only the standard library, and kafka_python.py also needs kafka-python, so `pip install --no-deps` is enough.
"""
