"""Run the short form of every benchmark, one after the other, and report which of them fail.

    python benchmarks/smoke.py                 all; `make smoke`
    python benchmarks/smoke.py speed bias      some of them

A short form has 30 seconds on two idle cores: one that takes more than 120 CPU seconds (a slow machine) fails, whatever
else the machine does meanwhile. So does one that ends with an error, whose last lines are printed, or
takes more than ten minutes. They share a compilation cache.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time

from harness import HERE, package_path

MAX_CPU_SECONDS, MAX_SECONDS = 120, 600
ERROR_LINES = 15


def programs() -> list[str]:
    """Return the names of all benchmarks that can be run."""
    paths = [path for path in sorted(HERE.glob("*.py")) if "__main__" in path.read_text()]
    return [path.stem for path in paths if path.stem != "smoke"]


def cpu_seconds() -> float:
    """Return the CPU seconds of all processes that were started and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(name: str, environment: dict[str, str]) -> str:
    """Run one short form; return what went wrong, or nothing."""
    command = [sys.executable, str(HERE / f"{name}.py"), "--smoke"]
    began, before, output, status = time.monotonic(), cpu_seconds(), "", 1
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment,
            timeout=MAX_SECONDS, check=False,
        )  # fmt: skip
        output, status = done.stdout, done.returncode
    except subprocess.TimeoutExpired:
        output = f"{name} took more than {MAX_SECONDS} s"
    cpu = cpu_seconds() - before
    if not status and cpu > MAX_CPU_SECONDS:
        output, status = f"{name} took {cpu:.0f} CPU s; at most {MAX_CPU_SECONDS} are allowed", 1
    lines = output.splitlines()
    print(
        f"{name:<20}{time.monotonic() - began:6.1f} s{cpu:7.1f} CPU s  {'failed' if status else 'ok'}",
        *(line for line in lines if line.startswith("left out")), sep="\n    ", flush=True,
    )  # fmt: skip
    return "\n".join([f"{name}:", *lines[-ERROR_LINES:]]) if status else ""


def main() -> None:
    names = sys.argv[1:] or programs()
    began, before = time.monotonic(), cpu_seconds()
    with tempfile.TemporaryDirectory() as cache:
        environment = {
            **os.environ, "PYTHONPATH": package_path(), "JAX_COMPILATION_CACHE_DIR": cache,
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }  # fmt: skip
        failures = [failure for name in names if (failure := run(name, environment))]
    print(
        f"{len(names)} programs, {len(failures)} failed, {time.monotonic() - began:.0f} s, "
        f"{cpu_seconds() - before:.0f} CPU s"
    )
    print(*failures, sep="\n\n")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
