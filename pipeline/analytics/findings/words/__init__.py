"""What a finding says: summary, evidence and advice for the facts of a problem, in plain Python.

A problem is one row, and few snapshots have any, so its words need no Spark.
"""
