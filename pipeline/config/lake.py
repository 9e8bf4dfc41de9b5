"""The location of the lake."""

import os
import re
from pathlib import Path
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import Field, ValidationError, model_validator

from pipeline.common.errors import ConfigError
from pipeline.config.relative_paths import RELATIVE_TO_FILE, is_relative
from pipeline.config.toml_file import Section, mistakes_of
from pipeline.config.value_types import Identifier, Location

LEDGER = "snapshots"
"""The table that every lake has."""


class LakeConfig(Section):
    """Where the tables are: either below a `root`, or in a `catalog` and `schema`."""

    root: Annotated[Location | None, RELATIVE_TO_FILE] = None
    """A folder, relative to this file, or the URI of an object store; the tables are at `<root>/<table>`."""
    catalog: Identifier | None = None
    """A catalog; the tables are `<catalog>.<schema>.<table>`."""
    schema_name: Identifier | None = Field(default=None, alias="schema")
    """The schema in that catalog, which must already exist."""

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        given = tuple(value is not None for value in (self.root, self.catalog, self.schema_name))
        if given not in ((True, False, False), (False, True, True)):
            raise ValueError("must have either root, or catalog and schema")
        return self

    @property
    def local_folder(self) -> Path | None:
        """The folder on this machine that `root` names; None if it is elsewhere, or if only Spark knows where.

        A path without a scheme belongs to Hadoop's default file system if this process has Hadoop's configuration.
        """
        url = urlsplit(self.root or "other:")
        is_hadoop = not url.scheme and any(name in os.environ for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"))
        if url.scheme not in ("", "file") or url.netloc or "%" in url.path or is_hadoop:
            return None
        return Path(url.path if url.scheme else self.root or "").absolute()


def is_lake(folder: Path) -> bool:
    """Whether a local folder is one of a lake."""
    return (folder / LEDGER / "_delta_log").is_dir()


def refuse_two_lakes(file: Path, written: Any, lake: LakeConfig) -> None:
    """Raises ConfigError if it is not certain which lake a file means by its root as it is written.

    Whoever is used to paths that are relative to the current folder has a lake there, and would get a second one.
    """
    folder = lake.local_folder
    if folder is None or not isinstance(written, str) or not is_relative(written):
        return
    try:
        here = Path(os.path.normpath(Path.cwd() / written))
    except FileNotFoundError:  # the current folder is deleted, and so has no lake
        return
    if not is_lake(here) or here.resolve() == folder.resolve():
        return
    of_file, of_here = f"{folder} (relative to this file)", f"{here} (relative to the current folder)"
    both, one = f"both {of_file} and {of_here} have a lake", f"there is no lake at {of_file}, but one at {of_here}"
    raise ConfigError(
        f"{file}: lake.root: {both if is_lake(folder) else one}: name the right one with --lake, or write it as an "
        "absolute path"
    )


def lake_at(location: str) -> LakeConfig:
    """The lake at a path, a URI, or a `catalog.schema` (two names with a dot between them, and no slash).

    Raises ConfigError if the text cannot be any of these.
    """
    named = re.fullmatch(r"([^\s.`/:]+)\.([^\s.`/:]+)", location)
    try:
        return LakeConfig.model_validate({"catalog": named[1], "schema": named[2]} if named else {"root": location})
    except ValidationError as error:
        reason = mistakes_of(error, LakeConfig)[0].what
    raise ConfigError(f"the location of a lake {reason}")
