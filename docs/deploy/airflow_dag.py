"""A run of laglake at each instant of its schedule, as an Airflow DAG."""

from datetime import datetime, timedelta, timezone

from airflow import DAG
from airflow.operators.bash import BashOperator

with DAG(
    dag_id="laglake",
    schedule="*/5 * * * *",  # as often as `schedule` in the config
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,  # what Kafka knew at a missed instant cannot be asked any more
    max_active_runs=1,
    dagrun_timeout=timedelta(minutes=10),
    tags=["kafka"],
) as dag:
    BashOperator(
        task_id="run",
        # Passwords come from the worker's environment.
        bash_command="/opt/laglake/spark-submit.sh run --config /etc/laglake/production.toml",
        append_env=True,
        retries=0,  # the next instant comes anyhow
    )
