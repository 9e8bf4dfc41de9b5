"""Histograms of lag, which can be merged over groups, brokers, hours and days, and their quantiles."""
