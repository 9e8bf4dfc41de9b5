"""Words about names, about the future of a group, and about how much of a time was seen."""
