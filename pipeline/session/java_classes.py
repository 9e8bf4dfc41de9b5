"""Java classes that PySpark uses for most columns, kept in Python.

py4j asks the JVM for a class, and for each of its methods, whenever a name is used. A class that is asked for by its
short name is first searched in all jars. A run uses thousands of such names, which took a tenth of its CPU time.

Only classic sessions have py4j, so this module must not be imported where PySpark's client alone is installed.
"""

from typing import Any

from py4j.java_gateway import JavaClass, JavaMember

CLASSES = (
    "org.apache.spark.api.python.PythonRDD",
    "org.apache.spark.api.python.PythonUtils",
    "org.apache.spark.api.python.SerDeUtil",
    "org.apache.spark.api.python.SimplePythonFunction",
    "org.apache.spark.sql.api.python.PythonSQLUtils",
    "org.apache.spark.sql.classic.SparkSession",
    "org.apache.spark.sql.functions",
)
FULL_NAME_ONLY = {"SparkSession"}
"""Short names by which PySpark means another class."""


class _KnownClass(JavaClass):  # type: ignore[misc]  # py4j has no type hints
    """A class that keeps its static methods. Fields are read from the JVM each time, because they may change."""

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if isinstance(found, JavaMember):
            setattr(self, name, found)
        return found


def keep_classes(jvm: Any) -> None:
    """Keeps CLASSES in py4j's view of the JVM, under the full names and the short names by which PySpark uses them."""
    for name in CLASSES:
        known = _KnownClass(name, jvm._gateway_client)  # noqa: SLF001
        setattr(jvm, name, known)
        short = name.rpartition(".")[2]
        if short not in FULL_NAME_ONLY:
            setattr(jvm, short, known)
