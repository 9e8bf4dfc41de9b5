"""How much page cache would serve a reader: what its broker has written since the record that it reads next."""
