"""Where evaluations run: a Dask cluster inside this process, or a running one."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lightglue_trt_ros.utils.errors import LightglueTrtError, in_words

from .discovery import fleet_module
from .plan import EvaluationPlan, Installation, plan_here

CONNECT_S = 10.0
WORKERS_S = 60.0  # for the first worker to come

logger = logging.getLogger(__name__)


@contextmanager
def connected(scheduler: str | None, workers: int, installed: Installation) -> Iterator[Any]:
    """A distributed.Client on the cluster at `scheduler`, or on one of `workers` in this process, which ends with the block.

    Raises LightglueTrtError where there is no such cluster, no worker comes, or the package there is another one.
    """
    fleet_module('pyarrow.parquet')  # what the workers need is missing here too: told before anything runs
    if scheduler is None:
        with _started_here(workers) as cluster, _client(cluster) as client:
            client.wait_for_workers(workers, timeout=WORKERS_S)
            yield client
        return
    with _client(scheduler) as client:
        try:
            client.wait_for_workers(1, timeout=WORKERS_S)
        except TimeoutError:
            raise LightglueTrtError(f'the scheduler at {scheduler} has no worker, after {WORKERS_S:.0f} s: start some '
                                    f'(dask worker {scheduler})') from None
        _refuse_others(client, scheduler, installed)
        known = client.scheduler_info(n_workers=-1)['workers']
        logger.info(f'{len(known)} workers of {sum(each["nthreads"] for each in known.values())} threads at {scheduler}')
        yield client


def agreed(client: Any, plan: EvaluationPlan) -> EvaluationPlan:
    """The plan as the workers have it: libraries, GPU, engines and files are theirs, wherever the fleet is started.

    Raises LightglueTrtError where one cannot have it, or two have it differently.
    """
    first = ''
    for worker, other in client.run(plan_here, plan.settings, on_error='return').items():
        if isinstance(other, BaseException):
            raise LightglueTrtError(f'the worker {worker} cannot evaluate: {in_words(other)}')
        if not first:
            first, plan = worker, other
        elif differences := plan.differences(other):
            raise LightglueTrtError(f'the worker {worker} has {", ".join(differences)}, as {first} has: install the same on both')
    return plan


@contextmanager
def _client(address: Any) -> Iterator[Any]:
    try:
        client = fleet_module('distributed').Client(address, timeout=CONNECT_S)
    except (OSError, TimeoutError, ValueError, ImportError) as error:
        raise LightglueTrtError(f'there is no Dask scheduler at {address} ({type(error).__name__}: {error}): start one with '
                                '`dask scheduler`, or leave --scheduler out') from None
    with client:
        yield client


@contextmanager
def _started_here(workers: int) -> Iterator[Any]:
    """A cluster inside this process: its parts talk through memory, so that nobody else can reach it. It has no dashboard.

    One thread a worker, which waits for the process that its evaluation has; no limit of memory, which Dask would apply to this
    process and not to those.
    """
    loopback = '127.0.0.1:0'
    with fleet_module('dask').config.set({'distributed.scheduler.http.routes': [], 'distributed.worker.http.routes': []}), \
         fleet_module('distributed').LocalCluster(
             n_workers=workers, threads_per_worker=1, processes=False, protocol='inproc://', dashboard_address=None,
             worker_dashboard_address=None, memory_limit=0, silence_logs=logging.ERROR,
             scheduler_kwargs={'dashboard': False, 'dashboard_address': loopback}) as cluster:
        cluster.sync(_stop_serving, cluster)
        yield cluster


async def _stop_serving(cluster: Any) -> None:
    """Close the ports of HTTP that Dask opens even without a dashboard."""
    for node in (cluster.scheduler, *cluster.workers.values()):
        node.http_server.stop()


def _refuse_others(client: Any, address: str, installed: Installation) -> None:
    """Raise LightglueTrtError unless scheduler and workers have this package; what comes later is refused job by job."""
    def ask() -> str:  # inside a function, so that its code is sent: there may be nothing there to import it from
        import lightglue_trt_ros
        try:
            from .plan import build
        except ImportError:
            return lightglue_trt_ros.__version__
        return build()

    try:
        builds = {f'the scheduler {address}': client.run_on_scheduler(ask)}
    except ImportError as error:
        builds = {f'the scheduler {address}': error}
    builds |= {f'the worker {worker}': build for worker, build in client.run(ask, on_error='return').items()}
    for machine, build in builds.items():
        if build != installed.build:
            package = f'lightglue_trt_ros {build}' if isinstance(build, str) else f'no lightglue_trt_ros ({build})'
            raise LightglueTrtError(f'{machine} has {package}, here is {installed.build}: install the same on both')
