"""The GPU of this machine, from its driver through PyCUDA, and the precision that it can run."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from ..backends.cuda import Cuda
from ..utils.errors import EngineError

FP8_CAPABILITY = (8, 9)  # Ada; Orin is 8.7
FP8_TENSORRT = 10
_ADVICE = {  # by what the driver, or the loader, says
    'libcuda': 'install the NVIDIA driver, or start the container with its GPUs (--gpus all, on a Jetson --runtime nvidia)',
    'stub library': 'the library is a stub for linking: take the stubs folder out of LD_LIBRARY_PATH',
    'no CUDA-capable device': 'check CUDA_VISIBLE_DEVICES, and start a container with its GPUs (--gpus all, --runtime nvidia)',
    'not yet initialized': 'wait, or start the fabric manager',
    'unsupported display driver': 'driver and kernel module differ: reboot after a driver update',
    'unknown error': 'the kernel module does not answer: reboot, or load nvidia_uvm (nvidia-modprobe -u)',
}


@dataclass(frozen=True)
class Machine:
    """One GPU as its driver describes it, or, with `multiprocessors` 0, any GPU of a compute capability."""

    gpu: str  # empty where it is any
    compute_capability: tuple[int, int]
    multiprocessors: int
    free_mib: int  # what an allocation may take now
    total_mib: int
    driver: str  # the newest CUDA that the driver supports, e.g. 12.6
    integrated: bool  # shares the machine's memory, as on a Jetson

    @property
    def present(self) -> bool:
        """Whether this is the machine's own GPU."""
        return self.multiprocessors > 0

    def __str__(self) -> str:
        major, minor = self.compute_capability
        if not self.present:
            return f'any GPU of compute capability {major}.{minor}'
        return (f'{self.gpu}, compute capability {major}.{minor}, {self.multiprocessors} multiprocessors, '
                f'{self.free_mib} of {self.total_mib} MiB {"shared memory " if self.integrated else ""}free, '
                f'driver for CUDA {self.driver}')


@dataclass(frozen=True)
class Decision:
    """The precision of each network, and a sentence that says what decided."""

    extractor: str
    matcher: str
    reason: str


def target(sm: int) -> Machine:
    """Any GPU of the compute capability that `sm` writes without its point: 89 is 8.9. Raises EngineError."""
    if not 50 <= sm <= 199:
        raise EngineError(f'compute capability {sm} does not exist: write 8.9 as 89')
    return Machine('', divmod(sm, 10), 0, 0, 0, '', False)


def has_gpu() -> bool:
    """Whether the kernel shows a GPU of NVIDIA's, whatever can be done with it: on a board, a Jetson, or through WSL."""
    return any(Path('/dev', name).exists() for name in ('nvidiactl', 'nvhost-gpu', 'nvgpu', 'dxg'))


def probe() -> Machine:
    """The GPU that CUDA counts as the first one. Raises EngineError where there is no PyCUDA, no driver or no GPU.

    The device's primary context lives for the length of the call.
    """
    try:
        cuda = Cuda()
    except EngineError as error:
        advice = next((advice for words, advice in _ADVICE.items() if words in str(error)), '')
        raise EngineError(f'no usable GPU: {error}' + (f'; {advice}' if advice else '')) from error
    with closing(cuda):
        free, total = (int(mib) for mib in cuda.memory_mib())
        if cuda.integrated:  # the driver counts what caches hold as taken; the kernel gives it back on demand
            free = max(free, _available_mib())
        return Machine(cuda.name, cuda.compute_capability, cuda.multiprocessors, free, total, cuda.driver, cuda.integrated)


def decide(asked: str, compute_capability: tuple[int, int], tensorrt_version: str, flavour: str,
           uncalibrated: str = '') -> Decision:
    """The precisions for `asked`: auto, fp32, fp16 or fp8 (the matcher's; the extractor is FP16 then).

    `flavour` is 'tensorrt' or 'tensorrt_rtx'; `uncalibrated` says why no FP8 matcher passed its acceptance check, empty: one did.
    Raises EngineError when fp8 is asked for and cannot be had, before anything is built.
    """
    if asked in ('fp32', 'fp16'):
        return Decision(asked, asked, f'{asked} was asked for')
    capability = '.'.join(map(str, compute_capability))
    lacking = ''
    if tuple(compute_capability) < FP8_CAPABILITY:
        lacking = f'compute capability {capability} is below {".".join(map(str, FP8_CAPABILITY))}, where FP8 begins'
    elif flavour != 'tensorrt_rtx' and int(tensorrt_version.split('.')[0]) < FP8_TENSORRT:
        lacking = f'TensorRT {tensorrt_version} is older than {FP8_TENSORRT}, which FP8 needs'
    if asked == 'fp8' and (lacking or uncalibrated):
        raise EngineError(f'fp8 was asked for, but {lacking or uncalibrated}' + (': use fp16 or auto' if lacking else ''))
    if lacking or uncalibrated:
        reason = lacking or 'no calibrated FP8 matcher passed its acceptance check'
        return Decision('fp16', 'fp16', f'FP16 for both networks: {reason}')
    return Decision('fp16', 'fp8', f'extractor FP16, matcher FP8: compute capability {capability}, TensorRT {tensorrt_version} '
                                   'and an FP8 graph, given or calibrated')


def _available_mib(meminfo: Path = Path('/proc/meminfo')) -> int:
    try:
        fields = dict(line.split(':', 1) for line in meminfo.read_text().splitlines())
        return int(fields['MemAvailable'].split()[0]) >> 10
    except (OSError, KeyError, ValueError):
        return 0
