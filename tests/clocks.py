"""A wall clock that a test sets for some processes alone; their monotonic clock stays the machine's

Debian's libfaketime 0.9.10 would do it, but lets every `time.sleep` of Python 3.11 fail: it takes the time
on the monotonic clock that `clock_nanosleep` is given for one that it has faked.
"""

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

HOUR = 3600
SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long long nothing = 0, *seconds = &nothing;

__attribute__((constructor)) static void begin(void) {
    int file = open(getenv("D5RAY_TEST_CLOCK"), O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    void *found = mmap(0, sizeof nothing, PROT_READ, MAP_SHARED, file, 0);
    if (found != MAP_FAILED) seconds = found;
    close(file);
}
static int is_wall(clockid_t id) { return id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE; }

int clock_gettime(clockid_t id, struct timespec *at) {
    int failed = syscall(SYS_clock_gettime, id, at);
    if (!failed && is_wall(id)) at->tv_sec += *seconds;
    return failed;
}
int gettimeofday(struct timeval *at, void *zone) {
    int failed = syscall(SYS_gettimeofday, at, zone);
    if (!failed) at->tv_sec += *seconds;
    return failed;
}
time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
/* The kernel's clock was not set: who waits until a time of the wall waits until the machine's. */
int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until) {
    static int (*wait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    if (!wait) wait = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    struct timespec real = *until;
    if (real.tv_sec > 1000000000) real.tv_sec -= *seconds;
    return wait(cond, mutex, &real);
}
"""


class Clock:
    """The clock of the processes that are started with its environment."""

    def __init__(self, folder: Path) -> None:
        """folder: for what is made; skips the test where there is no C compiler."""
        compiler = shutil.which("cc")
        if compiler is None:
            pytest.skip("there is no C compiler (apt-get install gcc)")
        source, library, self._file = folder / "clock.c", folder / "clock.so", folder / "clock"
        source.write_text(SOURCE)
        command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
        subprocess.run(command, check=True)
        self._file.write_bytes(bytes(8))
        self.environment = {"LD_PRELOAD": str(library), "D5RAY_TEST_CLOCK": str(self._file)}

    def set(self, seconds: int) -> None:
        """Let it be so far before the machine's clock, or behind it, from now on."""
        with self._file.open("r+b") as file:
            file.write(struct.pack("q", seconds))
