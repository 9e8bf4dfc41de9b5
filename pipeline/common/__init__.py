"""What every folder may use: errors, instants, locations of files, data sources' options, Arrow functions."""
