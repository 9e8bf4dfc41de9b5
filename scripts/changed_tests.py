"""Prints the test files that a change can break, and on stderr the reason for each: `make test-changed`.

    python -m scripts.changed_tests [SINCE]

The change is what differs from the commit SINCE, and what is not committed. Without SINCE, it is what differs from the
merge base with `main`. A test file runs if it, or a module that it imports, directly or through other modules, has
changed. A module also depends on each file that is not Python and that one of its texts names, also as "*.md".

- After a change of EVERYTHING, all tests run.
- FOUNDATIONS are imported by nearly all modules. After a change there, a test that starts Spark runs only if it is in
  the folder of the same name: the others take ten minutes.
- A test that needs a broker, starts a program or is in end_to_end/ runs whole jobs, and so depends on nearly all of the
  project. It runs after a change of RUNS_ALL, of itself or of its helpers. If it is not in end_to_end/, it also runs if
  it names what has changed, and if it starts programs, if it imports that itself. CI runs all of them.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from functools import cache, cached_property
from pathlib import Path

PACKAGES = ("benchmarks", "demo", "jobs", "laglake", "pipeline", "scripts", "tests")
SHARED = "tests/conftest.py"
EVERYTHING = (SHARED, "setup.cfg", "Makefile", "constraints.txt")
FOUNDATIONS = ("pipeline/common/", "pipeline/config/", "pipeline/kinds/", "pipeline/tables/")
RUNS_ALL = (
    *("pipeline/kafka/", "pipeline/snapshot/", "pipeline/lake/", "pipeline/session/"),
    *("jobs/", "demo/", "laglake/", "conf/", "spark-submit.sh"),
)
BROKERS = {"kafka", "kafka3", "admin3", "tls", "connect_server"}
"""Fixtures that start a broker or a server."""
SPARK = {"spark", "few_rows", "lake"}
"""Fixtures that start Spark."""


class Project:
    """The modules below a folder, and what each of them depends on. A file is its path from that folder."""

    def __init__(self, root: Path, changed: Iterable[str] = ()) -> None:
        self._root = root
        self._changed = [file for file in changed if file.endswith(".py")]

    @cached_property
    def files(self) -> dict[str, None]:
        """All files with Python, in their order."""
        found = (file for package in PACKAGES for file in sorted((self._root / package).rglob("*.py")))
        # Deleted ones, too: who still imports them is broken.
        return dict.fromkeys([*(file.relative_to(self._root).as_posix() for file in found), *self._changed])

    @cached_property
    def tests(self) -> list[str]:
        """The files with tests."""
        return [f for f in self.files if Path(f).name.startswith("test_") and (self._root / f).exists()]

    @cache  # noqa: B019 (there is one project in a process)
    def _tree(self, file: str) -> ast.Module:
        path = self._root / file
        return ast.parse(path.read_text("utf-8") if path.exists() else "")

    @cache  # noqa: B019
    def _nodes(self, file: str) -> list[ast.AST]:
        return [*ast.walk(self._tree(file))]

    @cache  # noqa: B019
    def imports(self, file: str) -> frozenset[str]:
        """The files that a file imports, also in functions. A name of a package is in the file that defines it."""
        found = set()
        for node in self._nodes(file):
            if isinstance(node, ast.Import):
                found |= {self._defined(alias.name) for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found |= {self._defined(f"{node.module}.{alias.name}") for alias in node.names}
        if Path(file).name.startswith("test_"):
            found |= self._of_fixtures(file)
        return frozenset(name for name in found if name)

    def _defined(self, name: str) -> str | None:
        """The file of a module, or the one that defines a name of a module; None if it is not of the project."""
        if name.split(".", maxsplit=1)[0] not in PACKAGES:
            return None
        path = name.replace(".", "/")
        if f"{path}.py" in self.files:
            return f"{path}.py"
        if f"{path}/__init__.py" in self.files:
            return f"{path}/__init__.py"
        module, _, own = name.rpartition(".")
        init = f"{module.replace('.', '/')}/__init__.py"
        if own and init in self.files:
            for node in self._nodes(init):
                if isinstance(node, ast.ImportFrom) and own in {alias.name for alias in node.names}:
                    return self._defined(f"{node.module}.{own}")
            return init
        return self._defined(module) if module else None

    def _of_fixtures(self, test: str) -> set[str | None]:
        """The conftest.py of a test's folder, and what the fixtures of tests/conftest.py that it uses import."""
        used = self._arguments(test) & {*self._shared_fixtures}
        return {*self._own_fixtures(test)}.union(*(self._shared_fixtures[name] for name in used))

    @cached_property
    def _shared_fixtures(self) -> dict[str, set[str | None]]:
        """What each function of tests/conftest.py uses of the project."""
        body = self._tree(SHARED).body
        origins = {
            alias.name: self._defined(f"{node.module}.{alias.name}")
            for node in body
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        return {
            function.name: {origins.get(node.id) for node in ast.walk(function) if isinstance(node, ast.Name)}
            for function in body
            if isinstance(function, ast.FunctionDef)
        }

    def _own_fixtures(self, test: str) -> set[str]:
        own = f"{Path(test).parent.as_posix()}/conftest.py"
        return {own} if own in self.files and own != SHARED else set()

    def _arguments(self, test: str) -> set[str]:
        """The names of the arguments of all functions of a test and of its folder's conftest.py, such as fixtures."""
        return {node.arg for node in self._own_nodes(test) if isinstance(node, ast.arg)}

    def _own_nodes(self, test: str) -> list[ast.AST]:
        return [node for file in (test, *self._own_fixtures(test)) for node in self._nodes(file)]

    def names(self, file: str, other: str) -> bool:
        """Whether a text in a file names another file that is not Python: its name, or a pattern such as `*.md`."""
        name = Path(other).name
        return any(text.endswith(name) or (text.startswith("*.") and fnmatch(name, text)) for text in self._texts(file))

    @cache  # noqa: B019
    def _texts(self, file: str) -> list[str]:
        values = [node.value for node in self._nodes(file) if isinstance(node, ast.Constant)]
        return [value for value in values if isinstance(value, str)]

    def depends(self, file: str, changed: str) -> bool:
        """Whether a file is, imports or names the changed one."""
        if changed.endswith(".py"):
            return file == changed or changed in self.imports(file)
        is_beside = Path(file).parent == Path(changed).parent
        return self.names(file, changed) or (is_beside and not self._is_named(changed))

    @cache  # noqa: B019
    def _is_named(self, changed: str) -> bool:
        """Whether a text of a module names a file. A template may be named by another template only."""
        return any(self.names(file, changed) for file in self.files if not file.startswith("tests/"))

    def depending_on(self, changed: str) -> set[str]:
        """The files that depend on the changed one, directly or through others."""
        found = newest = {file for file in self.files if self.depends(file, changed)}
        while newest:
            newest = {file for file in self.files if not self.imports(file).isdisjoint(newest)} - found
            found |= newest
        return found

    @cache  # noqa: B019
    def starts_programs(self, test: str) -> bool:
        """Whether a test, or one of its helpers, starts programs."""
        helpers = (file for file in self.imports(test) if file.startswith("tests/helpers/"))
        return any("subprocess" in self._modules(file) for file in (test, *helpers))

    def _modules(self, file: str) -> set[str]:
        nodes = self._nodes(file)
        named = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        return named | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}

    @cache  # noqa: B019
    def needs_broker(self, test: str) -> bool:
        """Whether a test is in end_to_end/, or needs a broker or a server."""
        return test.startswith("tests/end_to_end/") or not BROKERS.isdisjoint(self._arguments(test))

    @cache  # noqa: B019
    def starts_spark(self, test: str) -> bool:
        """Whether a test starts Spark."""
        own = {node.name for node in self._own_nodes(test) if isinstance(node, ast.FunctionDef)}
        return not (SPARK - own).isdisjoint(self._arguments(test))


def broken_by(project: Project, changed: str) -> Iterator[str]:
    """The test files that a change of one file can break: see above."""
    if changed in EVERYTHING:
        yield from project.tests
        return
    is_own = changed.startswith("tests/")
    depending = project.depending_on(changed)
    of_folder = f"tests/{Path(changed).parent.name}/"
    for test in project.tests:
        needs_broker, starts_programs = project.needs_broker(test), project.starts_programs(test)
        if needs_broker or starts_programs:
            imports = starts_programs and not needs_broker and project.depends(test, changed)
            is_near = imports or (not test.startswith("tests/end_to_end/") and project.names(test, changed))
            if changed.startswith(RUNS_ALL) or is_near or (is_own and test in depending):
                yield test
        elif test in depending:
            is_light = not project.starts_spark(test) or test.startswith(of_folder)
            if is_light or not changed.startswith(FOUNDATIONS):
                yield test


def changed_files(root: Path, since: str | None) -> list[str]:
    """The files that differ from a commit, or from the merge base with main, and those that are not committed."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True).stdout.strip()

    if since is None:
        has_main = git("branch", "--list", "main") or git("branch", "--remotes", "--list", "origin/main")
        since = git("merge-base", "HEAD", has_main.split()[-1]) if has_main else "HEAD"
    differing = git("diff", "--name-only", since).splitlines()
    return sorted({*differing, *git("ls-files", "--others", "--exclude-standard").splitlines()})


def main(root: Path, words: Iterable[str]) -> int:
    """Prints the files with tests to run, separated by blanks, and on stderr a line for each changed file."""
    differing = changed_files(root, next(iter(words), None))
    project = Project(root, differing)
    selected: set[str] = set()
    for changed in differing:
        found = [*broken_by(project, changed)]
        sys.stderr.write(f"{changed}: {reason(project, found)}\n")
        selected |= {*found}
    sys.stderr.write(f"{len(selected)} of {len(project.tests)} files with tests\n")
    sys.stdout.write(" ".join(sorted(selected)) + "\n")
    return 0


def reason(project: Project, found: list[str]) -> str:
    """Which tests a changed file can break, in words."""
    if not found:
        return "no test"
    return "all tests" if found == project.tests else f"{len(found)} files: {' '.join(found)}"


if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parents[1], [word for word in sys.argv[1:] if word]))
