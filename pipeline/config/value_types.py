"""The types of values in a configuration, each with the check that says what a value must be.

A check raises ValueError. Its message is shown after the key, and never contains the value.
"""

import re
import warnings
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from pipeline.common.epoch import DAY_MS, HOUR_MS, MINUTE_MS
from pipeline.config.relative_paths import is_relative
from pipeline.config.toml_file import FilledIn, Int

_UNITS_MS = {"ms": 1, "s": 1_000, "m": MINUTE_MS, "h": HOUR_MS, "d": DAY_MS}
_YEAR_MS = 366 * DAY_MS


def duration_ms(text: object, most_ms: int = _YEAR_MS) -> int:
    """A duration such as "500ms", "1s", "5m", "2h" or "1d" in milliseconds. Raises ValueError."""
    match = re.fullmatch(r"(\d{1,12})(ms|s|m|h|d)", text, re.ASCII) if isinstance(text, str) else None
    value_ms = int(match[1]) * _UNITS_MS[match[2]] if match else 0
    if not 0 < value_ms <= most_ms:
        raise ValueError('must be a duration such as "500ms", "30s", "5m", "2h" or "1d"')
    return value_ms


def instant(value: object) -> datetime:
    """An instant in UTC: a date and time of TOML, or ISO 8601 as text, with Z or an offset. Raises ValueError."""
    try:
        parsed = datetime.fromisoformat(value) if isinstance(value, str) else value
        if isinstance(parsed, datetime) and parsed.tzinfo is not None:
            return parsed.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise ValueError("must be an instant with Z or an offset, such as 2026-01-31T12:00:00Z")


def _regex(text: str) -> str:
    try:
        with warnings.catch_warnings(action="ignore"):
            re.compile(text)
    except re.error as error:
        hint = "; any text is .*" if text.startswith("*") else ""
        raise ValueError(f"is not a regular expression: {error}{hint}") from None
    except (OverflowError, RecursionError):
        raise ValueError("is not a regular expression: a repeat or a nesting is too large") from None
    if re.search(r"(?<!\\)(\\\\)*\\[1-9]", text):
        raise ValueError("refers back by number, which changes when expressions are combined; name the group")
    return text


def _host_and_port(text: str) -> str:
    match = re.fullmatch(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.%]+\]):(\d{1,5})", text, re.ASCII)
    if not match or not 0 < int(match[1]) < 65_536:
        raise ValueError('must be one host:port such as "10.0.0.1:9092"')
    return text


def cluster_name(text: str) -> str:
    """The name, if it is valid for a cluster. Raises ValueError if it is not."""
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", text):
        raise ValueError("the name of a cluster is 1 to 64 letters, digits, dots, dashes or underscores")
    return text


def _identifier(text: str) -> str:
    if not re.fullmatch(r"[^\s.`]+", text):
        raise ValueError("must be one name, without dots, spaces or backticks")
    return text


# Ports, also of several hosts, are not passwords; neither is what stands before a container of Azure. Keys may contain
# slashes.
_WITH_PASSWORD = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/*[^/?#@]*:(?!\d+(?:,[^/?#@,:]+(?::\d+)?)*(?:/|$))[^@]*@")


def _absolute(root: str) -> str:
    if not root.strip():
        raise ValueError("must not be empty")
    if "`" in root:
        raise ValueError("must not contain a backtick")  # Spark quotes paths with them
    if _WITH_PASSWORD.match(root):  # Spark and Delta repeat a table's path in logs and errors
        raise ValueError("must not have a password in its URI; set the keys of the store in Spark's settings")
    if root.startswith("~"):  # a folder of this name would be made
        raise ValueError("must not begin with ~, which only a shell replaces: write the whole path")
    if re.match("file:(?!/)", root, re.IGNORECASE):
        raise ValueError("must be absolute after file:, such as file:///lake")
    # Of a file, all relative paths are absolute by now: this one is of the command line.
    try:
        return str(Path(root).absolute()) if is_relative(root) else root
    except FileNotFoundError:
        gone = "is relative to the current folder, which is not there any more: write an absolute path"
        raise ValueError(gone) from None


def _not_empty(items: tuple[str, ...]) -> tuple[str, ...]:
    # Not min_length, which counts only valid items, so that an invalid one would be reported twice.
    if not items:
        raise ValueError("must not be empty")
    return items


def any_of(patterns: Sequence[str]) -> str:
    """One expression that matches whatever any of `patterns` matches; empty if there are none."""
    return "|".join(_scoped(pattern) for pattern in patterns)


def _scoped(pattern: str) -> str:
    """A pattern as a group of its own, so that leading flags such as `(?i)` apply only to it."""
    flags = re.match(r"\(\?([aiLmsux]+)\)", pattern)
    if not flags:
        return f"(?:{pattern})"
    # A verbose pattern, (?x), may end with a comment; the line break ends this comment.
    end = "\n)" if "x" in flags[1] else ")"
    return f"(?{flags[1]}:{pattern[flags.end() :]}{end}"


_REFERENCES = "${env:NAME} or ${secret:SCOPE/KEY}"


def not_literal(value: object) -> object:
    """The value, if it is not a secret that is written into the file itself. Raises ValueError if it is."""
    if isinstance(value, str) and value and not isinstance(value, FilledIn):
        raise ValueError(f"is secret and must not be written into the file: use {_REFERENCES}")
    return value


def without_login(value: object) -> object:
    """The same for a URL: only its user and password are secret."""
    if isinstance(value, str) and re.match(r"([^/?#]*//)?[^/?#]*@", value) and not isinstance(value, FilledIn):
        raise ValueError(f"has a user or a password, which must not be written into the file: use {_REFERENCES}")
    return value


Secret = Annotated[SecretStr, BeforeValidator(not_literal)]
SecretUrl = Annotated[SecretStr, BeforeValidator(without_login)]
DurationMs = Annotated[int, BeforeValidator(duration_ms)]
Instant = Annotated[datetime, BeforeValidator(instant)]
Regex = Annotated[str, AfterValidator(_regex)]
HostPort = Annotated[str, AfterValidator(_host_and_port)]
ClusterName = Annotated[str, AfterValidator(cluster_name)]
Identifier = Annotated[str, AfterValidator(_identifier)]
Location = Annotated[str, AfterValidator(_absolute)]
NotEmpty = AfterValidator(_not_empty)
Count = Annotated[Int, Field(ge=1)]
