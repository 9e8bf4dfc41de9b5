"""What a scheduler calls: one module for each job, each with a `main(argv)` that returns the exit status."""
