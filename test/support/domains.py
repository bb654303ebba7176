"""DDS domains for tests: one for each process that runs them, whatever else runs on this machine."""

from __future__ import annotations

import errno
import socket

FIRST, LAST = 1, 99  # above are those of people who try something beside the tests
BASE, GAIN, UNICAST = 7400, 250, 10  # ports of a domain (DDSI-RTPS 9.6.1): BASE + GAIN * domain, and of its first participant


def claim_domain(start: int) -> tuple[int, socket.socket]:
    """A domain that nobody uses, from `start` on, and the socket that keeps it: other runs pass over it until that is closed.

    DDS has the ports for UDP; the claim is the same number for TCP. Raises RuntimeError where all are taken.
    """
    count = LAST - FIRST + 1
    for number in range(count):
        domain = FIRST + (start + number) % count
        claim = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            claim.bind(('127.0.0.1', BASE + GAIN * domain))
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as participant:
                participant.bind(('', BASE + GAIN * domain + UNICAST))
            return domain, claim
        except OSError as error:
            claim.close()
            if error.errno != errno.EADDRINUSE:
                raise
    raise RuntimeError(f'all DDS domains from {FIRST} to {LAST} are in use: end other tests and ROS nodes on this machine')
