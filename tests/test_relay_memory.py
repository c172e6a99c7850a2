"""Memory that was freed is there for the next body."""

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, sys
from thunder_router.relay.memory import keep_freed

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

if sys.argv[1] == "keeping":
    assert keep_freed()
bodies = [bytes([n]) * 100_000 for n in range(200)]
del bodies
before = faults()
for _ in range(20):
    bodies = [bytes([n]) * 100_000 for n in range(200)]
    del bodies
print(faults() - before)
"""


def faults(how: str) -> int:
    """Page faults of twenty times two hundred bodies of 100 KB, made and freed."""
    run = subprocess.run(
        [sys.executable, "-c", FAULTS, how], capture_output=True, text=True, check=True
    )
    return int(run.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library, another malloc")
def test_bodies_take_the_memory_of_those_before_them() -> None:
    assert faults("keeping") < 1_000
    assert faults("as glibc would") > 10_000
