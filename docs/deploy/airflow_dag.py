"""laglake every five minutes, for Airflow 3. The workers have the checkout in /opt/laglake, as a service would."""

from datetime import UTC, datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

with DAG(
    dag_id="laglake",
    schedule="*/5 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    # A snapshot cannot be taken of the past.
    catchup=False,
    max_active_runs=1,
    dagrun_timeout=timedelta(minutes=30),
):
    # --at makes a retry the same snapshot: what the first try has landed is not landed twice. If the first try was
    # killed, the retry waits at most until the next snapshot is due and then fails, because nobody finishes this one.
    BashOperator(
        task_id="run",
        bash_command="/opt/laglake/spark-submit.sh run --config /etc/laglake/laglake.toml --at {{ ts }}",
        retries=2,
        retry_delay=timedelta(seconds=20),
    )
