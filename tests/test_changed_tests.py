"""Which tests `make test-changed` runs: in a small project, and after some changes of this one."""

import subprocess
from pathlib import Path

import pytest

from scripts.changed_tests import Project, broken_by, changed_files, main
from tests.conftest import ROOT

FILES = {
    "pipeline/__init__.py": "",
    "pipeline/config/__init__.py": """
from pipeline.config.model import Config
from pipeline.config.owners import OWNERS
""",
    "pipeline/config/model.py": "class Config: ...\n",
    "pipeline/config/owners.py": "OWNERS = 1\n",
    "pipeline/lake/__init__.py": "from pipeline.lake.lake import Lake\n",
    "pipeline/lake/lake.py": "from pipeline.config import Config\nclass Lake: ...\n",
    "pipeline/report/__init__.py": "",
    "pipeline/report/page.py": "def page():\n    from pipeline.report import rows\n    return 'page.html'\n",
    "pipeline/report/rows.py": "from pipeline.lake import Lake\n",
    "jobs/__init__.py": "",
    "jobs/run.py": "import pipeline.report.page\n",
    "tests/conftest.py": "from pipeline.lake import Lake\ndef lake(): return Lake()\ndef kafka(): ...\n",
    "tests/helpers/rows.py": "ROWS = ()\n",
    "tests/helpers/started.py": "import subprocess\n",
    "tests/config/test_model.py": "from pipeline.config import Config\n",
    "tests/report/conftest.py": "from pipeline.config.owners import OWNERS\n",
    "tests/report/test_rows.py": "from pipeline.report import rows\nfrom tests.helpers.rows import ROWS\n",
    "tests/report/test_page.py": "from pipeline.report.page import page\n",
    "tests/test_lake.py": "def test_it(lake): ...\n",
    "tests/test_broker.py": "from jobs import run\ndef test_it(kafka): ...\n",
    "tests/test_program.py": "from jobs import run\nfrom tests.helpers.started import subprocess\nGUIDE = '*.md'\n",
    "tests/end_to_end/test_all.py": "from jobs import run\n",
}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return Project(tmp_path)


ALL = {name for name in FILES if "/test_" in name}
OF_REPORT = {"tests/report/test_rows.py", "tests/report/test_page.py"}
WHOLE_JOBS = {"tests/test_broker.py", "tests/test_program.py", "tests/end_to_end/test_all.py"}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        # Directly, through a function's import, and not the jobs' tests.
        ("pipeline/report/rows.py", OF_REPORT),
        ("pipeline/report/page.py", {"tests/report/test_page.py"}),
        # A file that is not Python changes the module that names it.
        ("pipeline/report/page.html", {"tests/report/test_page.py"}),
        # Through a name of a package, and through a fixture.
        ("pipeline/lake/lake.py", OF_REPORT | {"tests/test_lake.py"} | WHOLE_JOBS),
        # A foundation: not the tests that start Spark.
        ("pipeline/config/model.py", OF_REPORT | {"tests/config/test_model.py"}),
        # A package imports all of its modules, but only the names that are used count.
        ("pipeline/config/owners.py", OF_REPORT),
        ("jobs/run.py", WHOLE_JOBS),
        ("tests/helpers/rows.py", {"tests/report/test_rows.py"}),
        ("tests/helpers/started.py", {"tests/test_program.py"}),
        ("tests/end_to_end/test_all.py", {"tests/end_to_end/test_all.py"}),
        ("docs/guide.md", {"tests/test_program.py"}),
        ("LICENSE", set()),
        *[(name, ALL) for name in ("tests/conftest.py", "setup.cfg", "Makefile", "constraints.txt")],
    ],
)
def test_a_change_runs_the_tests_that_it_can_break(project: Project, changed: str, expected: set[str]) -> None:
    assert {*broken_by(project, changed)} == expected


def test_a_deleted_module_runs_the_tests_that_import_it(project: Project, tmp_path: Path) -> None:
    (tmp_path / "tests" / "helpers" / "rows.py").unlink()
    project = Project(tmp_path, ["tests/helpers/rows.py"])
    assert {*broken_by(project, "tests/helpers/rows.py")} == {"tests/report/test_rows.py"}


def git(folder: Path, *words: str) -> None:
    of_nobody = ("-c", "user.name=n", "-c", "user.email=n@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *of_nobody, *words], cwd=folder, check=True, capture_output=True)


def test_a_change_is_what_differs_from_main_and_what_is_not_committed(
    project: Project, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    git(tmp_path, "init", "--initial-branch", "main")
    for name in ("lake", "page"):
        git(tmp_path, "add", ".")
        git(tmp_path, "commit", "--message", name)
        git(tmp_path, "switch", "--create", name)
        (tmp_path / "pipeline" / "report" / f"{name}.py").write_text("CHANGED = True\n")
    (tmp_path / "LICENSE").write_text("new")
    assert changed_files(tmp_path, None) == ["LICENSE", "pipeline/report/lake.py", "pipeline/report/page.py"]
    assert changed_files(tmp_path, "HEAD") == ["LICENSE", "pipeline/report/page.py"]
    assert main(tmp_path, ["HEAD"]) == 0
    said = capsys.readouterr()
    assert said.out == "tests/report/test_page.py\n"
    assert said.err.splitlines() == [
        "LICENSE: no test",
        "pipeline/report/page.py: 1 files: tests/report/test_page.py",
        "1 of 7 files with tests",
    ]


@pytest.fixture(scope="module")
def this_project() -> Project:
    return Project(ROOT)


@pytest.mark.parametrize(
    ("changed", "some", "none"),
    [
        (
            "pipeline/report/cards/cards.py",
            {"report/test_cards.py", "report/test_page.py"},
            {"kafka", "lake", "end_to_end"},
        ),
        ("pipeline/notify/payloads.py", {"notify/test_payloads.py"}, {"kafka", "lake", "end_to_end", "session"}),
        ("pipeline/config/notify.py", {"config/test_notify_config.py"}, {"kafka", "end_to_end", "snapshot"}),
        ("docs/alerts.md", {"test_alerts.py", "test_docs.py"}, {"kafka", "lake", "end_to_end", "report"}),
        ("pipeline/kafka/client.py", {"kafka/test_client.py", "end_to_end/test_status.py"}, set()),
    ],
)
def test_changes_of_this_project(this_project: Project, changed: str, some: set[str], none: set[str]) -> None:
    found = {test.removeprefix("tests/") for test in broken_by(this_project, changed)}
    assert some <= found
    assert not {test for test in found if test.split("/")[0] in none}
