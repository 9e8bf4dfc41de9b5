"""The location of the lake."""

import os
import re
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from pydantic import Field, ValidationError, model_validator

from pipeline.common.errors import ConfigError
from pipeline.config.toml_file import Section, mistakes_of
from pipeline.config.value_types import Identifier, Location


class LakeConfig(Section):
    """Where the tables are: either below a `root`, or in a `catalog` and `schema`."""

    root: Location | None = None
    """A folder, or the URI of an object store; the tables are at `<root>/<table>`."""
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
