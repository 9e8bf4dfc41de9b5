"""Reporters that a Python application adds to its consumers; laglake reads from their files how far these have read.

They need only the standard library; kafka_python.py also needs kafka-python. So `pip install --no-deps` is enough.
"""
