#!/usr/bin/env bash
# Writes build/classes-BYTES.jsa, an archive of the Java classes that a job uses. Java maps it into memory, and need not
# load the classes from 290 jars. spark-submit.sh uses it if it is there. Another version of Java, or of one of the jars,
# ignores it.
#
# Java writes the archive when it ends. If that fails, its exit status is 1, so no job of the user writes it. The classes
# are those of a job that analyses a recording in a lake of its own.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
mkdir -p "$root/build"
scratch=$(mktemp -d "$root/build/.classes-XXXXXX")
trap 'rm -rf "$scratch"' EXIT

echo "archive-classes.sh: writing an archive of classes into build, which takes a minute" >&2
name=legacy-a2-blocked
tar -xf "$root/tests/data/recordings/$name.tar.xz" -C "$scratch"
printf '[lake]\nroot = "lake"\n[clusters.c]\nbootstrap_servers = ["127.0.0.1:1"]\n' >"$scratch/config.toml"
options="-XX:ArchiveClassesAtExit=\"$scratch/classes.jsa\" -Xlog:disable"
job=("$root/spark-submit.sh" --master 'local[2]' --conf "spark.driver.extraJavaOptions=$options" --
  replay --config "$scratch/config.toml" --recording "$scratch/$name")
if ! "${job[@]}" 2>"$scratch/log"; then
  cat "$scratch/log" >&2
  exit 1
fi
sync "$scratch/classes.jsa"
size=$(wc -c <"$scratch/classes.jsa" | tr -d ' ')
rm -f "$root"/build/classes-*.jsa
mv -f "$scratch/classes.jsa" "$root/build/classes-$size.jsa"
