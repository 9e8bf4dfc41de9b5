#!/usr/bin/env bash
# Compile the log store for lakes on S3: `build-log-store.sh SPARK_HOME FILE.jar`. SPARK_HOME has Delta's jars, too.
#
# Spark brings the Scala compiler along, so that a Java runtime is enough.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
jars=$1/jars
mkdir -p "$(dirname "$2")"
unfinished=$(mktemp -d)
trap 'rm -rf "$unfinished"' EXIT
"${JAVA_HOME:+$JAVA_HOME/bin/}java" -cp "$jars/*" scala.tools.nsc.Main -Werror -classpath "$jars/*" \
  -d "$unfinished/log-store.jar" "$root/pipeline/lake/S3LogStore.scala"
mv "$unfinished/log-store.jar" "$2"
