#!/usr/bin/env bash
# Run a job of laglake with spark-submit:
#
#   ./spark-submit.sh [OPTIONS OF SPARK-SUBMIT --] JOB [OPTIONS OF THE JOB]
#
# Jobs:
#   run        take a snapshot, compute the lag and write the report, in one Spark session
#   snapshot   take a snapshot of each cluster
#   lag        compute the lag of every snapshot that does not have it yet
#   show       print the partitions with the most lag from a local lake, without Spark
#   report     write the report
#   notify     send messages about findings; with --test, without Spark
#   maintain   remove old rows and compact small files
#   replay     analyse a recording made elsewhere
#   doctor     check the clusters and the lake, without Spark
#   try        show a recorded example and its report, without Kafka and Spark, as `make try` does
#
# With --local, the jobs run, snapshot, lag, report and notify do without Spark and Java, on a lake in a local folder.
# `./spark-submit.sh JOB --help` lists the options of a job. Spark is that of SPARK_HOME. If SPARK_HOME is not set, it is
# that of the virtual environment build/venv, else of .venv. If there is none, the first job that needs Spark installs it
# into build/venv; a job without Spark installs only what it needs.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

fail() {
  echo "spark-submit.sh: $2" >&2
  exit "$1"
}

usage() {
  sed -n '2,/^set/{/^# \{0,1\}/{s///;p;}}' "${BASH_SOURCE[0]}"
}

# What stands before `--` is for spark-submit; without it, all is the job's.
spark_options=()
job=("$@")
for ((i = 1; i <= $#; i++)); do
  if [[ ${!i} == -- ]]; then
    spark_options=("${@:1:i-1}")
    job=("${@:i+1}")
    break
  fi
done

name=${job[0]:-}
if [[ $name == -h || $name == --help ]]; then
  usage
  exit 0
fi
[[ $name =~ ^(snapshot|lag|show|report|run|notify|replay|maintain|doctor|try)$ ]] ||
  fail 2 "the job must be snapshot, lag, show, report, run, notify, replay, maintain, doctor or try; \
options of spark-submit go before --; --help explains the jobs; for the demo call make demo"
script=$root/jobs/$name.py
set -- "${job[@]:1}"

has_option() { # has_option REGEX ARGUMENTS
  local argument
  for argument in "${@:2}"; do
    [[ ! $argument =~ ^$1(=|$) ]] || return 0
  done
  return 1
}
needs_spark=1
environment=.light
! has_option --local "$@" || environment=.local
if [[ $name =~ ^(doctor|show|try)$ ]] || has_option '(-h|--help|--check|--test|--local)' "$@"; then
  needs_spark=
fi
export LAGLAKE_CONFIG=${LAGLAKE_CONFIG:-$root/conf/local.toml}
without_spark() {
  PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} "$python" -P -m jobs "$name" "$@"
}

# The python that drives the job: with SPARK_HOME the caller's, else the virtual environment's.
has_packages() {
  "$1" -P -c 'import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, ("kafka", "pydantic"))))' 2>/dev/null
}
if [[ -n ${SPARK_HOME:-} ]]; then
  own=
  [[ -n $needs_spark ]] || own=$root/build/venv/bin/python
  for python in "${PYSPARK_DRIVER_PYTHON:-}" "${PYSPARK_PYTHON:-}" python3 "$own" ""; do
    [[ -n $python ]] && has_packages "$python" && break
  done
  [[ -n $python ]] || fail 1 "SPARK_HOME is set, so PYSPARK_PYTHON must name a python that has laglake's packages, \
such as build/venv/bin/python after make venv; or unset SPARK_HOME to use the Spark in build/venv"
else
  venv=$root/build/venv
  if [[ ! -e $venv/.installed && -x $root/.venv/bin/spark-submit ]]; then
    venv=$root/.venv
  fi
  python=$venv/bin/python
  if [[ $venv == "$root/build/venv" && ! -e $venv/.installed ]]; then
    if [[ -n $needs_spark ]]; then
      [[ ! -e $venv/.light ]] || without_spark --check "$@" >/dev/null
      echo "spark-submit.sh: installing Spark into build/venv, which takes minutes, once" >&2
      make --silent --no-print-directory -C "$root" check-java jars >&2
    elif [[ ! -e $venv/$environment ]]; then
      echo "spark-submit.sh: installing what jobs without Spark need into build/venv, once" >&2
      make --silent --no-print-directory -C "$root" "build/venv/$environment" >&2
    fi
  fi
  export PYSPARK_PYTHON=$python PYSPARK_DRIVER_PYTHON=$python
  SPARK_HOME=$("$python" -c 'import importlib.util as u; print(u.find_spec("pyspark").submodule_search_locations[0])')
  export SPARK_HOME
fi

# What is wrong with the arguments or the config is said now, in a second; --help and --check end here.
if [[ -z $needs_spark ]]; then
  export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
  exec "$python" -P -m jobs "$name" "$@" # in place of this shell, so that a signal to it reaches the job
fi
without_spark --check "$@" >/dev/null

"$root/scripts/check-java.sh"
package=$root/build/laglake.zip
"$python" -P "$root/pipeline/session/package_zip.py" "$package"

# --conf rather than a properties file, so that the caller's spark-defaults.conf or --properties-file still count.
options=()
packages=
while read -r key value; do
  case $key in
    '' | '#'*) ;;
    spark.jars.packages) packages=$value ;;
    *) options+=(--conf "$key=$value") ;;
  esac
done <"$root/conf/spark-defaults.conf"
if compgen -G "$SPARK_HOME/jars/*delta-spark*.jar" >/dev/null; then
  packages=
fi
# The name of Delta's package has Spark's version in it.
for jar in "$SPARK_HOME"/jars/spark-core_*.jar; do
  if [[ -n $packages && $jar =~ -([0-9][^/]*)\.jar$ ]]; then
    packages=$("$python" -P "$root/pipeline/session/delta_package.py" "${BASH_REMATCH[1]}" "$packages" 2>&1) ||
      fail 1 "$SPARK_HOME: $packages"
  fi
done

value_of() { # value_of NUMBER: of an option of spark-submit, written as `--option value` or `--option=value`
  if [[ ${spark_options[$1]} == *=* ]]; then echo "${spark_options[$1]#*=}"; else echo "${spark_options[$1 + 1]:-}"; fi
}
# What spark-submit will take for the master: its option, --conf, the file of its settings, or the environment; empty if
# none names it.
master() {
  local file=${SPARK_CONF_DIR:-$SPARK_HOME/conf}/spark-defaults.conf option= conf= i
  for ((i = 0; i < ${#spark_options[@]}; i++)); do
    case ${spark_options[i]}=${spark_options[i + 1]:-} in
      --master=*) option=$(value_of "$i") ;;
      --conf=spark.master=* | -c=spark.master=*) conf=$(value_of "$i") conf=${conf#spark.master=} ;;
      --properties-file=*) file=$(value_of "$i") ;;
    esac
  done
  if [[ -z $option$conf && -r $file ]]; then
    conf=$(sed -n 's/^[[:space:]]*spark\.master[[:space:]=:]*//p' "$file" | tail -n 1)
  fi
  conf=${option:-$conf}
  echo "${conf:-${MASTER:-}}"
}

# spark-submit takes the last of an option: lists that both sides have are joined.
py_files=$package
log_stores=$root/build/laglake-log-stores.jar
jars=
if [[ -e $log_stores ]] && ! compgen -G "$SPARK_HOME/jars/laglake-log-stores.jar" >/dev/null; then
  jars=$log_stores
fi
# Executors that this machine starts have its jars, and YARN sends them its own. Those of a standalone or Kubernetes
# cluster have the jars of their own Spark: without Delta's they fail with a ClassCastException that names nothing.
if [[ ! $(master) =~ ^(local|yarn|$) ]]; then
  for jar in "$SPARK_HOME"/jars/*.jar; do
    case ${jar##*/} in
      *delta-* | *unitycatalog-* | laglake-log-stores.jar) jars+=${jars:+,}$jar ;;
    esac
  done
fi
for ((i = 0; i < ${#spark_options[@]}; i++)); do
  case ${spark_options[i]} in
    --packages) packages+=${packages:+,}${spark_options[++i]:-} ;;
    --packages=*) packages+=${packages:+,}${spark_options[i]#*=} ;;
    --jars) jars+=${jars:+,}${spark_options[++i]:-} ;;
    --jars=*) jars+=${jars:+,}${spark_options[i]#*=} ;;
    --py-files) py_files+=,${spark_options[++i]:-} ;;
    --py-files=*) py_files+=,${spark_options[i]#*=} ;;
    *) options+=("${spark_options[i]}") ;;
  esac
done
[[ -z $packages ]] || options+=(--packages "$packages")
[[ -z $jars ]] || options+=(--jars "$jars")

# Of `run --every`; `--check` above has refused it for other jobs.
is_repeated=
! has_option --every "$@" || is_repeated=1

# The default options, so that the caller's spark.driver.extraJavaOptions still count. Blanks would split the path.
java_options="-Dlog4j2.configurationFile=file://${root// /%20}/conf/log4j2.properties"
if [[ -n $is_repeated ]]; then
  # Pauses do no harm to a batch; a concurrent collector takes a tenth of a run's CPU time.
  java_options+=" -XX:+ExitOnOutOfMemoryError -XX:+UseParallelGC"
else
  # A job lives for a minute or so: the optimizing compiler and a concurrent collector would take a third of its CPU time
  # and give nothing back. (With one compiler the JVM would by itself reserve too little for compiled code.) For a backlog
  # of hours say --conf spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=4.
  java_options+=" -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseParallelGC"
fi
# What `make class-archive` writes, with its size in its name: Java ignores an archive that does not fit or is damaged,
# but crashes if the end is missing. It should not complain about an archive in the log. Checking it takes 0.1 s.
if [[ $(master) =~ ^(local|$) && ${options[*]} != *ArchiveClassesAtExit* ]]; then
  for classes in "$root"/build/classes-*.jsa; do
    if [[ -f $classes && -r $classes && $classes == */classes-$(wc -c <"$classes" | tr -d ' ').jsa ]]; then
      java_options+=" \"-XX:SharedArchiveFile=$classes\" -XX:+VerifySharedSpaces -Xlog:cds*=off"
      break
    fi
  done
fi
submit=("$SPARK_HOME/bin/spark-submit" --name "laglake $name" --conf "spark.driver.defaultJavaOptions=$java_options")
submit+=("${options[@]}" --py-files "$py_files" "$script" "$@")
# Spark passes what the job writes to stderr, its log, on to stdout; it belongs on stderr.
# What `lag --show` prints belongs on stdout, and a file takes it there.
if [[ $name == lag ]] && has_option --show "$@"; then
  LAGLAKE_STDOUT=$(mktemp)
  trap 'rm -f "$LAGLAKE_STDOUT"' EXIT
  export LAGLAKE_STDOUT
  [[ ! -t 1 ]] || export LAGLAKE_STDOUT_IS_A_TERMINAL=1
  status=0
  "${submit[@]}" >&2 || status=$?
  cat "$LAGLAKE_STDOUT"
  exit "$status"
fi
[[ -n $is_repeated ]] || exec "${submit[@]}" >&2

# The job, a child of Spark's JVM, ends after its current step when it gets SIGTERM or SIGINT; the JVM has to outlive it, so
# it ignores both. Until the job has begun there is nothing to finish.
LAGLAKE_PID_FILE=$(mktemp)
export LAGLAKE_PID_FILE
trap 'rm -f "$LAGLAKE_PID_FILE"' EXIT
(trap '' TERM INT && exec "${submit[@]}" >&2) &
spark=$!
pass_on() {
  if [[ -s $LAGLAKE_PID_FILE ]]; then
    kill -TERM "$(<"$LAGLAKE_PID_FILE")" 2>/dev/null || true
  else
    kill -KILL "$spark" 2>/dev/null || true
    wait "$spark" 2>/dev/null || true  # so that nothing of it is left when this script has ended
    exit 143
  fi
}
trap pass_on TERM
trap 'if [[ ! -s $LAGLAKE_PID_FILE ]]; then pass_on; fi' INT  # a terminal sends it to the job, too
while kill -0 "$spark" 2>/dev/null; do
  wait "$spark" || true  # a signal ends this wait, but not the job
done
wait "$spark"
