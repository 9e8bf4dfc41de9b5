"""Pure: nothing here reads, writes or tells the time. DataFrame → DataFrame; one partition's ruler is plain Python."""
