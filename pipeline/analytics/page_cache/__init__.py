"""How much page cache a reader needs: the bytes that its broker has written since the record that it reads next."""
