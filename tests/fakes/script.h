/* The functions of a fake driver that follow its script: `struct control` has its fields, and `struct gpu` its
 * steps of power. */
static const volatile struct control *control;
static struct count *counts;
static int64_t loaded_ns;

/* When the process loaded the library, and initialized it, is real also in a simulation. */
static int64_t host_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* The time of all scripted events. */
static int64_t now_ns(void) {
    int64_t simulated_ns = control == NULL ? 0 : control->simulated_ns;
    return simulated_ns != 0 ? simulated_ns : host_ns();
}

static void *map_file(const char *path, size_t size, int flags, int protection) {
    if (path == NULL) return NULL;
    int fd = open(path, flags);
    if (fd < 0) return NULL;
    void *memory = mmap(NULL, size, protection, MAP_SHARED, fd, 0);
    close(fd);
    return memory == MAP_FAILED ? NULL : memory;
}

static void count_call(const char *function, int64_t gpu) {
    if (counts == NULL) return;
    for (int i = 0; i < MAX_COUNTS; i++) {
        if (counts[i].function[0] == 0) strncpy(counts[i].function, function, NAME_LENGTH - 1);
        if (strcmp(counts[i].function, function) == 0) {
            __sync_fetch_and_add(&counts[i].calls[gpu < 0 ? MAX_GPUS : gpu], 1);
            return;
        }
    }
}

/* The scripted result of this call: waits while it hangs, then returns its code. */
static int scripted(const char *function, int64_t gpu) {
    int code = 0;
    for (int64_t i = 0; i < control->rule_count && i < MAX_RULES; i++) {
        const volatile struct rule *rule = &control->rules[i];
        if (rule->gpu != -1 && rule->gpu != gpu) continue;
        if (strcmp((const char *)rule->function, "*") != 0 &&
            strcmp((const char *)rule->function, function) != 0) continue;
        while (rule->hang) usleep(2000);
        if (rule->code != 0) code = (int)rule->code;
    }
    return code;
}

/* The step of the script that is in force; by halves, for a long script shall cost readers nothing. */
static int64_t segment_at(const volatile struct gpu *gpu, int64_t t_ns) {
    int64_t low = 0, high = gpu->segment_count;
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;
        if (gpu->segments[middle].from_ns <= t_ns) low = middle;
        else high = middle;
    }
    return low;
}

static double power_w(const volatile struct gpu *gpu, int64_t t_ns) {
    return gpu->segments[segment_at(gpu, t_ns)].power_w;
}

static double integral_j(const volatile struct gpu *gpu, int64_t start_ns, int64_t end_ns) {
    double joules = 0;
    int64_t at = start_ns;
    for (int64_t i = segment_at(gpu, start_ns); i < gpu->segment_count && at < end_ns; i++) {
        int64_t next = i + 1 < gpu->segment_count ? gpu->segments[i + 1].from_ns : INT64_MAX;
        int64_t until = next < end_ns ? next : end_ns;
        joules += gpu->segments[i].power_w * (double)(until - at) / 1e9;
        at = until;
    }
    return joules;
}

/* Begins anew with these files, as a process does that loads the library; NULL: with none. */
static void use_files(const char *control_path, const char *counts_path) {
    if (control != NULL) munmap((void *)control, sizeof(struct control));
    if (counts != NULL) munmap(counts, sizeof(struct count) * MAX_COUNTS);
    loaded_ns = host_ns();
    control = map_file(control_path, sizeof(struct control), O_RDONLY, PROT_READ);
    counts = map_file(counts_path, sizeof(struct count) * MAX_COUNTS, O_RDWR,
                      PROT_READ | PROT_WRITE);
    if (control != NULL && control->size != sizeof(struct control)) {
        fprintf(stderr, "fake driver: control file of another layout\n");
        control = NULL;
    }
}
