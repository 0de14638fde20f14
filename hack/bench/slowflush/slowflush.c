// Preloaded into PostgreSQL, it makes every flush take longer, so that a disk
// with slow flushes can be measured where there is none. SLOWFLUSH_US is the
// additional time in microseconds.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

static void pause_first(void) {
    const char *us = getenv("SLOWFLUSH_US");
    if (us) usleep((useconds_t)atoi(us));
}

int fdatasync(int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    pause_first();
    return real(fd);
}

int fsync(int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    pause_first();
    return real(fd);
}
