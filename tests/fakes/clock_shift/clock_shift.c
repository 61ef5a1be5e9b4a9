/* A wall clock that a test steps: preloaded, it adds the first number of a mapped file
 * (CLOCK_SHIFT_FILE), in ns, to the calendar of a process, and the second one to CLOCK_BOOTTIME. All
 * other clocks stay the host's, as when NTP or an operator steps it, or the host is suspended.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *shift_ns;

__attribute__((constructor)) static void load(void) {
    const char *path = getenv("CLOCK_SHIFT_FILE");
    int fd = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    void *memory = mmap(NULL, 2 * sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (memory != MAP_FAILED) shift_ns = memory;
}

int clock_gettime(clockid_t clock, struct timespec *t) {
    int failed = (int)syscall(SYS_clock_gettime, clock, t);
    if (failed || shift_ns == NULL) return failed;
    int is_calendar = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
    if (!is_calendar && clock != CLOCK_BOOTTIME) return 0;
    int64_t ns = (int64_t)t->tv_sec * 1000000000 + t->tv_nsec + shift_ns[is_calendar ? 0 : 1];
    t->tv_sec = ns / 1000000000;
    t->tv_nsec = ns % 1000000000;
    return 0;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    t->tv_sec = now.tv_sec;
    t->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    if (out != NULL) *out = now.tv_sec;
    return now.tv_sec;
}
