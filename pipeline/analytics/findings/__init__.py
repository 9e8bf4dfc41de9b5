"""What is wrong: the problems of groups, topics and clusters, and the findings that combine problems that last."""
