"""A Dask cluster on this machine, in processes that a Ctrl-C on the terminal does not reach.

`python -m lightglue_trt_ros.evaluation.fleet.local_cluster WORKERS` prints the scheduler's address. It ends with its standard
input.
"""

from __future__ import annotations

import logging
import sys

from ...utils.processes import wait_for_parent
from .extra import fleet_module


def main() -> None:
    """One thread a worker; no limit of memory, which Dask would apply to the workers and not to what they start."""
    cluster = fleet_module('distributed').LocalCluster(
        n_workers=int(sys.argv[1]), threads_per_worker=1, processes=True, host='127.0.0.1', dashboard_address=None,
        memory_limit=0, silence_logs=logging.ERROR)
    with cluster:
        print(cluster.scheduler_address, flush=True)
        wait_for_parent()


if __name__ == '__main__':
    main()
