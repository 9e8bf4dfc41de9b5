"""Histograms of lag that merge over groups, brokers, hours and days, and their quantiles."""
