"""How each reader is doing, judged snapshot after snapshot: the rules. Tables of it are to follow."""
