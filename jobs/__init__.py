"""The commands: one module for each job, with a `main(argv)` that returns the exit status."""
