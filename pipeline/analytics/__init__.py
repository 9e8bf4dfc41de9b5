"""Pure: nothing here reads, writes or asks the time. DataFrame → DataFrame; one partition's ruler is plain Python."""
