"""How each reader and group is doing, judged snapshot by snapshot: the rules, and the tables with their results."""
