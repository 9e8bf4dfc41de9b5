"""laglake every five minutes on Databricks, for Airflow 3.3: it starts the job `run_serverless` of the bundle.

In conf/databricks.toml, set `schedule = "5m"` and `window = "15m"`: with 15 minutes, two of three runs would end with
"has taken it". In databricks.yml, set `run_schedule: PAUSED` under `targets.prod.variables`: then only Airflow starts
`run`, and `maintain` keeps its own schedule. Deploy the bundle. The connection `databricks_default` has the workspace,
and an identity that may run the job: CAN_RUN in the bundle's variable `permissions`.
"""

from datetime import UTC, datetime, timedelta

from airflow.providers.databricks.operators.databricks import DatabricksRunNowOperator
from airflow.sdk import DAG

with DAG(
    dag_id="laglake_on_databricks",
    schedule="*/5 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    # A snapshot cannot be taken of the past.
    catchup=False,
    max_active_runs=1,
    dagrun_timeout=timedelta(minutes=30),
):
    # If Airflow's worker is killed, the next try waits for the job run that the worker started: the operator is durable
    # by default. If the job run fails, the next try starts another one.
    DatabricksRunNowOperator(
        task_id="run",
        job_name="laglake serverless",
        retries=2,
        retry_delay=timedelta(seconds=20),
    )
