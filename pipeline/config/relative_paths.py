"""Relative paths in a file: they are relative to its folder, and not to the folder in which a job is called.

cron calls a job in the home folder. A path that is relative to the current folder would make a second lake there, or
begin a request log again, without a word.
"""

import os
import re
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel


class RelativeToFile:
    """Marks a key that has a path or several paths, each of which may be a URI."""


RELATIVE_TO_FILE = RelativeToFile()
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def is_relative(location: str) -> bool:
    """Whether a location is a path that is not absolute. A path that begins with ~ is none: it is refused elsewhere."""
    return bool(location.strip()) and not location.startswith(("/", "~")) and not _SCHEME.match(location)


def with_absolute_paths(table: Any, model: type[BaseModel], folder: Path) -> Any:
    """A table of `model`, as a file in `folder` has it, with its relative paths made absolute.

    What is not of the kind that the model expects stays as it is, for the model to report.
    """
    if not isinstance(table, dict):
        return table
    found = dict(table)
    for key, field in model.model_fields.items():
        name = field.alias or key
        if name not in table:
            continue
        if RELATIVE_TO_FILE in field.metadata:
            found[name] = _absolute(table[name], folder)
        else:
            found[name] = _inner_tables(table[name], field.annotation, folder)
    return found


def _inner_tables(value: Any, hint: Any, folder: Path) -> Any:
    """The same for the value of a key, which may be a table, tables by their names, or a list of tables."""
    model = next((kind for kind in (hint, *get_args(hint)) if _is_model(kind)), None)
    if model is None:
        return value
    if isinstance(value, tuple):
        return tuple(with_absolute_paths(table, model, folder) for table in value)
    if get_origin(hint) is dict and isinstance(value, dict):
        return {name: with_absolute_paths(table, model, folder) for name, table in value.items()}
    return with_absolute_paths(value, model, folder)


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _absolute(value: Any, folder: Path) -> Any:
    if isinstance(value, tuple):
        return tuple(_absolute(each, folder) for each in value)
    if not isinstance(value, str) or not is_relative(value):
        return value
    # `normpath` takes `..` for the folder before it in the text. So the folder is resolved: if it is a link, a root
    # above it would otherwise depend on how the file is named. A linked file is not resolved, as Kubernetes has them.
    return type(value)(os.path.normpath(folder.resolve() / value))  # a text that a variable has filled in stays one
