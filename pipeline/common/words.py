"""How numbers and names are written in sentences and addresses."""

from urllib.parse import quote


def counted(number: int, noun: str) -> str:
    """A number with its noun: 1 group, 2,000 groups."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def spaced(name: str) -> str:
    """A name such as slow_consumer, with blanks in place of underscores."""
    return name.replace("_", " ")


def visible(name: str) -> str:
    r"""The name, in which every character that is invisible or changes the direction of text is escaped.

    >>> visible("a\nb")
    'a\\nb'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


def named(name: str) -> str:
    """A name as a sentence has it: `""` for the empty text, which Kafka allows for a group's name."""
    return name or '""'


def visible_name(name: str) -> str:
    """A name as a person reads it: `visible`, and `""` for the empty text."""
    return visible(named(name))


def group_address(cluster: str, group_id: str) -> str:
    """The part of a report's address that names a group, from # on.

    >>> group_address("east", "a/b c")
    '#group/east/a%2Fb%20c'
    """
    return f"#group/{quote(visible(cluster), safe='')}/{quote(visible_name(group_id), safe='')}"
