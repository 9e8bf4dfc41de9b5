"""Histograms of lag that can be merged over groups, brokers, hours and days, and their quantiles."""
