"""Measurements on the machine at hand; `make bench` prints them and writes docs/benchmarks.md."""
