/* A library for LD_PRELOAD that shifts the wall clock of a process by CLOCK_OFF seconds, to test
   hosts with a wrong clock. Monotonic clocks and sleeps are unchanged. Debian's faketime shifts or
   breaks these too. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static long off(void) {
    const char *text = getenv("CLOCK_OFF");
    return text ? atol(text) : 0;
}

int clock_gettime(clockid_t id, struct timespec *at) {
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(id, at);
    if (code == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
        at->tv_sec += off();
    return code;
}

time_t time(time_t *to) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    if (to)
        *to = at.tv_sec;
    return at.tv_sec;
}

int gettimeofday(struct timeval *at, void *zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}
