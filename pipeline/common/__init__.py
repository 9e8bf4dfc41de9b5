"""What every folder may use: errors, instants, locations of files, options of data sources, columns, sentences."""
