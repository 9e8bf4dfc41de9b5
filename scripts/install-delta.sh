#!/usr/bin/env bash
# Put Delta's jars beside Spark's own: `install-delta.sh SPARK_HOME WORK_FOLDER`.
#
# Every session of that Spark then has Delta without resolving packages: 3 s and a page of output less for each job.
# Coordinates are those of conf/spark-defaults.conf; Spark's own resolver fetches them.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
home=$1
mkdir -p "$2"
work=$(cd "$2" && pwd) # Ivy wants an absolute path

setting() {
  awk -v name="$1" '$1 == name { print $2 }' "$root/conf/spark-defaults.conf"
}

rm -rf "$work"/* "$home"/jars/io.delta_*.jar "$home"/jars/io.unitycatalog_*.jar
# The program to submit is an empty one: what is wanted is what spark-submit does before it.
: >"$work/nothing.py"
if ! SPARK_HOME=$home "$home/bin/spark-submit" --packages "$(setting spark.jars.packages)" \
  --conf "spark.jars.excludes=$(setting spark.jars.excludes)" --conf "spark.jars.ivy=$work" \
  "$work/nothing.py" >"$work/log" 2>&1 </dev/null; then
  echo "install-delta.sh: Delta's jars could not be fetched; $work/log says why" >&2
  exit 1
fi
cp "$work"/jars/*.jar "$home/jars/"
