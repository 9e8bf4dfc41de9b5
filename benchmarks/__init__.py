"""Measurements on this machine; `make bench` prints them and writes docs/benchmarks.md."""
