#!/usr/bin/env bash
# Compile the log stores for lakes in folders and on S3: `build-log-stores.sh SPARK_HOME FILE.jar`. SPARK_HOME has
# Delta's jars, too.
#
# Spark brings the Scala compiler along, so that a Java runtime is enough.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
jars=$1/jars
mkdir -p "$(dirname "$2")"
unfinished=$(mktemp -d)
trap 'rm -rf "$unfinished"' EXIT
"${JAVA_HOME:+$JAVA_HOME/bin/}java" -cp "$jars/*" scala.tools.nsc.Main -Werror -classpath "$jars/*" \
  -d "$unfinished/log-stores.jar" "$root"/pipeline/lake/*.scala
mv "$unfinished/log-stores.jar" "$2"
