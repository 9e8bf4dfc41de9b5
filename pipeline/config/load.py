"""Loads the settings from a TOML file and from those that it includes, and checks them before anything starts."""

from collections.abc import Mapping
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pipeline.common.errors import ConfigError
from pipeline.config.lake import lake_at, refuse_two_lakes
from pipeline.config.model import ClusterConfig, Config
from pipeline.config.relative_paths import with_absolute_paths
from pipeline.config.toml_file import MISSING, ConfigMistake, Key, merged, mistakes_of, read_toml


def load_config(path: Path, env: Mapping[str, str], lake: str | None = None) -> Config:
    """The checked settings of a TOML file and of those that it includes, with `${env:NAME}` taken from `env`.

    `lake` replaces the file's table `[lake]`. Relative paths in a file are relative to its folder; a relative `lake` is
    relative to the current folder.

    Raises:
        ConfigError: one line `FILE: key.path: what is wrong` for each mistake; no line shows a value, except
            for the places of two lakes if it is not certain which one is meant.
    """
    as_written = read_toml(path, env)
    tables = with_absolute_paths(as_written, Config, path.parent)
    tables["defaults"] = with_absolute_paths(as_written.get("defaults", {}), ClusterConfig, path.parent)
    if lake is not None:
        tables["lake"] = lake_at(lake)
    files = _include(path, tables, env)
    defaults, clusters = tables.get("defaults", {}), tables.get("clusters")
    whole = tables
    if isinstance(defaults, dict) and isinstance(clusters, dict):
        each = {name: merged(defaults, own) if isinstance(own, dict) else own for name, own in clusters.items()}
        whole = tables | {"clusters": each}
    try:
        config = Config.model_validate(whole)
        if lake is None:
            refuse_two_lakes(path, as_written["lake"].get("root"), config.lake)
        return config
    except ValidationError as error:
        mistakes = mistakes_of(error, Config)
    # Outside of the exception handler, because pydantic's error contains the values.
    lines = [f"{files.get(at[:2], path)}: {ConfigMistake(at, what)}" for at, what in _once(mistakes, tables)]
    raise ConfigError("\n".join(lines))


INCLUDED = ("clusters", "clients")
"""The tables that an included file may have."""


def _include(path: Path, tables: dict[str, Any], env: Mapping[str, str]) -> dict[Key, Path]:
    """Adds the contents of the included files to `tables`; returns which file each cluster and client is from."""
    folder = tables.get("include")
    if not folder or not isinstance(folder, str):
        return {}
    here = path.parent / folder
    try:
        files = sorted(f for f in here.iterdir() if f.suffix.lower() == ".toml" and not f.name.startswith("."))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: include: {here}: cannot be read: {getattr(error, 'strerror', error)}") from None
    if not files:
        raise ConfigError(f"{path}: include: {here} has no *.toml")
    origins: dict[Key, Path] = {}
    mistakes: list[str] = []
    for file in files:
        try:
            more = with_absolute_paths(read_toml(file, env), Config, file.parent)
            _add(tables, origins, path, file, more)
        except ConfigError as error:
            mistakes.append(str(error))
    if mistakes:
        raise ConfigError("\n".join(mistakes))
    return origins


def _add(tables: dict[str, Any], origins: dict[Key, Path], path: Path, file: Path, more: Mapping[str, Any]) -> None:
    for table, entries in more.items():
        if table not in INCLUDED or not isinstance(entries, dict):
            raise ConfigError(f"{file}: {table}: an included file has only [clusters.X] and [clients.X]")
        known = tables.setdefault(table, {})
        for name, entry in entries.items() if isinstance(known, dict) else ():
            if name in known:
                other = origins.get((table, name), path)
                raise ConfigError(f"{file}: {ConfigMistake((table, name), f'is already defined in {other}')}")
            known[name], origins[table, name] = entry, file


def _once(mistakes: list[ConfigMistake], tables: Mapping[str, Any]) -> list[ConfigMistake]:
    """The same mistakes, but a mistake in `defaults` is reported once and there, not for each cluster."""

    def located(mistake: ConfigMistake) -> ConfigMistake:
        table, *key = mistake.at or ("",)
        # A missing key is in neither table, so the table that should have it is compared.
        given = key[1:] if mistake.what != MISSING else key[1:-1]
        if table != "clusters" or not given or _has(tables, (table, key[0], *given)):
            return mistake
        return ConfigMistake(("defaults", *key[1:]), mistake.what) if _has(tables, ("defaults", *given)) else mistake

    return list(dict.fromkeys(map(located, mistakes)))


def _has(tables: Any, at: Key) -> bool:
    """Whether `tables` has a value at this key."""
    try:
        reduce(getitem, at, tables)
    except (KeyError, IndexError, TypeError):
        return False
    return True
