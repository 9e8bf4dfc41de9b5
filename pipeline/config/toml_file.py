"""Reads a TOML file, fills in environment variables and secrets, and describes each mistake in words.

This module knows no settings; they are in `pipeline.config.model`. No message and no `repr` contains a value, because
any value may be a password.
"""

import difflib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from pipeline.common.errors import ConfigError
from pipeline.config.databricks import secret

Key = tuple[str | int, ...]
MOST_BYTES = 1_000_000


class Section(BaseModel):
    """A table of the file: immutable, and with no other keys than its fields.

    The text below a field goes into the configuration reference.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)

    def __repr_args__(self) -> tuple[()]:
        """Nothing, because the output of `repr` and `str` ends up in logs."""
        return ()


class FilledIn(str):
    """Text that a `${env:NAME}` or `${secret:SCOPE/KEY}` was filled into. Only such text may be a number or boolean."""


def _literal(value: object) -> object:
    if not isinstance(value, FilledIn):
        return value
    if re.fullmatch(r"-?[0-9]{1,18}", value):
        return int(value)
    return {"true": True, "false": False}.get(value, value)


Int = Annotated[int, BeforeValidator(_literal)]
Bool = Annotated[bool, BeforeValidator(_literal)]


def read_toml(path: Path, env: Mapping[str, str]) -> dict[str, Any]:
    """The tables of a TOML file, with lists as tuples and with `${env:NAME}` and `${secret:SCOPE/KEY}` replaced.

    Raises:
        ConfigError: no such file, not TOML (with the line), a variable that is not set, a secret that cannot be read.
    """
    text = ""
    try:
        # It must be a regular file: reading a pipe would wait, and reading a device would never end.
        if path.exists() and not (path.is_file() and path.stat().st_size <= MOST_BYTES):
            raise ConfigError(f"{path}: must be a file of at most 1 MB")
        text = path.read_text(encoding="utf-8-sig")
        tables = tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        what = str(error).replace("end of document", f"line {len(text.splitlines())}, the last")
        raise ConfigError(f"{path}: is not TOML: {what}") from None
    except RecursionError:
        raise ConfigError(f"{path}: tables or lists are nested too deeply") from None
    except ValueError:  # Python reads no number of more than 4,300 digits
        raise ConfigError(f"{path}: a number has too many digits") from None
    mistakes: list[str] = []
    filled: dict[str, Any] = _fill_in(tables, env, (), mistakes)
    if mistakes:
        raise ConfigError("\n".join(f"{path}: {mistake}" for mistake in mistakes))
    return filled


def merged(defaults: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The table `own`, plus what only `defaults` has. Tables that both have are merged in the same way."""
    both = {
        name: merged(defaults[name], value) for name, value in own.items() if _are_tables(defaults.get(name), value)
    }
    return {**defaults, **own, **both}


def _are_tables(*values: Any) -> bool:
    return all(isinstance(value, dict) for value in values)


class ConfigMistake(NamedTuple):
    """What is wrong with a value, and its key: the names of tables and the indexes in lists that lead to it."""

    at: Key
    what: str

    def __str__(self) -> str:
        return f"{_dotted(self.at)}: {self.what}" if self.at else self.what


def mistakes_of(error: ValidationError, model: type[BaseModel]) -> list[ConfigMistake]:
    """The mistakes that `model` found."""
    return [
        ConfigMistake(found["loc"], _in_words(found, model))
        for found in error.errors(include_url=False, include_input=False)
    ]


_REFERENCE = re.compile(r"\$\{(\w+):([^}]*)(\}?)")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET = re.compile(r"([\w.@-]+)/([\w.-]+)", re.ASCII)
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def _fill_in(value: Any, env: Mapping[str, str], at: Key, mistakes: list[str]) -> Any:
    if isinstance(value, dict):
        return {name: _fill_in(item, env, (*at, name), mistakes) for name, item in value.items()}
    if isinstance(value, list):
        return tuple(_fill_in(item, env, (*at, i), mistakes) for i, item in enumerate(value))
    if not isinstance(value, str) or not _REFERENCE.search(value):
        return value

    def look_up(reference: re.Match[str]) -> str:
        try:
            return _referred(*reference.groups(), env=env)
        except ValueError as error:
            mistakes.append(f"{_dotted(at)}: {error}")
            return ""

    return FilledIn(_REFERENCE.sub(look_up, value))


def _referred(kind: str, name: str, closed: str, *, env: Mapping[str, str]) -> str:
    if kind == "env":
        if not closed or not _VARIABLE.fullmatch(name):
            raise ValueError("a reference is written ${env:NAME}")
        if name not in env:
            raise ValueError(f"the environment variable {name} is not set")
        return env[name]
    if kind != "secret":
        raise ValueError("a reference is written ${env:NAME} or ${secret:SCOPE/KEY}")
    named = _SECRET.fullmatch(name)
    if not closed or not named:
        raise ValueError("a reference is written ${secret:SCOPE/KEY}")
    try:
        return secret(*named.groups())
    except ValueError as error:
        raise ValueError(f"the secret {name} {error}") from None


MISSING = "is required"

_IN_WORDS = {
    "missing": MISSING,
    "string_type": "must be text",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "tuple_type": "must be a list",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "too_short": "must not be empty",
    "greater_than_equal": "must be {ge} or more",
    "less_than_equal": "must be {le} or less",
    "literal_error": "must be {expected}",
    "value_error": "{error}",
}


def _in_words(found: Mapping[str, Any], model: type[BaseModel]) -> str:
    if found["type"] == "extra_forbidden":
        *table, name = found["loc"]
        close = difflib.get_close_matches(str(name), _keys_of(model, table), n=1)
        return f"unknown key; did you mean {close[0]}?" if close else "unknown key"
    # For other types, pydantic's own message is used: it may name Python types, but never the value.
    if found["type"] == "tuple_type" and len(found["loc"]) == 1:
        return f"must be a list of tables: begin each with [[{found['loc'][-1]}]]"
    words: str = _IN_WORDS.get(found["type"]) or found["msg"]
    return words.format_map(found.get("ctx", {}))


def _keys_of(model: Any, table: list[str | int]) -> list[str]:
    """The keys that a table in the file may have."""
    for name in table:
        if isinstance(model, type) and issubclass(model, BaseModel):
            fields = model.model_fields
            model = next(f.annotation for key, f in fields.items() if name in (key, f.alias))
        else:  # dict[str, ClusterConfig], tuple[PositionsConfig, ...]: every name or number leads to the same model
            model = next(m for m in reversed(get_args(model)) if m is not ...)
    return [field.alias or key for key, field in model.model_fields.items()]


def _dotted(at: Key) -> str:
    """A key as TOML writes it, with the index in a list: `clusters.east.groups.deny[0]`."""
    text = ""
    for part in at:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part != "[key]":  # how pydantic marks that a key, not its value, is wrong
            name = part if _BARE_KEY.fullmatch(part) else f"{part!a}"
            text += f".{name}" if text else name
    return text
