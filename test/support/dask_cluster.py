"""`python -m support.dask_cluster WORKERS`: a Dask cluster of processes that anybody can reach, as a team has one.

It prints the scheduler's address, and ends with its standard input.
"""

from __future__ import annotations

import logging
import sys

from distributed import LocalCluster

if __name__ == '__main__':
    with LocalCluster(n_workers=int(sys.argv[1]), threads_per_worker=1, processes=True, host='127.0.0.1', dashboard_address=None,
                      memory_limit=0, silence_logs=logging.ERROR) as cluster:
        print(cluster.scheduler_address, flush=True)
        sys.stdin.read()
