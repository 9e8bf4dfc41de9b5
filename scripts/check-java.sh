#!/usr/bin/env bash
# Exits with 1 and says what to install, unless the java that Spark would start is version 17 or newer.
set -euo pipefail

java=${JAVA_HOME:+$JAVA_HOME/bin/}java
version=$("$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1) || true

if [[ ! $version =~ ^[0-9]+$ ]]; then
  found="there is none at $java"
elif ((version < 17)); then
  found="$java is version $version"
else
  exit 0
fi
cat >&2 <<EOF
laglake needs Java 17 or newer, and $found. Install one, or point JAVA_HOME at one:
  Debian, Ubuntu   apt install openjdk-17-jre-headless
  Fedora, RHEL     dnf install java-17-openjdk-headless
  macOS            brew install openjdk@17
EOF
exit 1
