"""How numbers are written in sentences."""


def counted(number: int, noun: str) -> str:
    """A number with its noun: 1 group, 2,000 groups."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
