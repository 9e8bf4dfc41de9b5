"""`python -m jobs JOB`: the command `laglake JOB` in a checkout, where it is not installed."""

from jobs.entry_points import laglake

if __name__ == "__main__":
    laglake()
