/* A fake NVIDIA management library: what pynvml asks for, scripted by a memory-mapped file.
 *
 * The control file (FAKE_NVML_CONTROL) is opened read-only and may be changed by the test at any
 * moment; its layout is mirrored by fakes/nvml_layout.py. Time is CLOCK_MONOTONIC, or stands where
 * the control file says (simulated_ns). Power is a step function of time; the energy counter is its
 * integral, and advances in steps, as a real board's does. Optionally every call is counted in
 * FAKE_NVML_CALLS. A process that has loaded the library may turn to other files by fake_nvml_use.
 * Without a control file it is a library without a driver.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MAX_GPUS 16
#define MAX_SEGMENTS 2048
#define MAX_RULES 64
#define MAX_PIDS 32
#define MAX_COUNTS 64
#define NAME_LENGTH 96

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6,
       INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, LIB_RM_VERSION_MISMATCH = 18 };

struct segment { int64_t from_ns; double power_w; };

struct gpu {
    char name[NAME_LENGTH];
    char uuid[NAME_LENGTH];
    int64_t segment_count;
    struct segment segments[MAX_SEGMENTS];
    int64_t counter_zero_ns;
    int64_t counter_step_ns;
    uint64_t counter_base_mj;
    uint64_t util_pct;
    uint64_t mem_util_pct;
    uint64_t mem_total_bytes;
    uint64_t mem_reserved_bytes;
    uint64_t mem_used_bytes;
    int64_t temp_c;
    uint64_t sm_clock_mhz;
    uint64_t mem_clock_mhz;
    uint64_t event_reasons;
    int64_t throttle_since_ns;
    uint64_t throttle_base_ns[2];
    double throttle_share[2];
    uint64_t ecc_uncorrected;
    int64_t pid_count;
    uint64_t pids[MAX_PIDS];
    int64_t mps_pid_count;
    uint64_t mps_pids[MAX_PIDS];
    int64_t busy_pid_count;
    uint64_t busy_pids[MAX_PIDS];
};

struct rule { char function[NAME_LENGTH]; int64_t gpu; int64_t code; int64_t hang; };

struct control {
    uint64_t size;
    int64_t simulated_ns;
    int64_t gpu_count;
    char driver_version[NAME_LENGTH];
    char nvml_version[NAME_LENGTH];
    int64_t uninitialized_at_ns;
    int64_t upgraded_at_ns;
    int64_t rule_count;
    struct rule rules[MAX_RULES];
    struct gpu gpus[MAX_GPUS];
};

struct count { char function[NAME_LENGTH]; uint64_t calls[MAX_GPUS + 1]; };

static const volatile struct control *control;
static struct count *counts;
static int64_t loaded_ns;
static volatile int64_t initialized_ns;

/* When the process loaded the library, and initialized it, is real also in a simulation. */
static int64_t host_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* The time of everything that a script says of the GPUs. */
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

/* Begins anew with these files, as a process does that loads the library; NULL: with none. */
void fake_nvml_use(const char *control_path, const char *counts_path) {
    if (control != NULL) munmap((void *)control, sizeof(struct control));
    if (counts != NULL) munmap(counts, sizeof(struct count) * MAX_COUNTS);
    loaded_ns = host_ns();
    initialized_ns = 0;
    control = map_file(control_path, sizeof(struct control), O_RDONLY, PROT_READ);
    counts = map_file(counts_path, sizeof(struct count) * MAX_COUNTS, O_RDWR,
                      PROT_READ | PROT_WRITE);
    if (control != NULL && control->size != sizeof(struct control)) {
        fprintf(stderr, "fake_nvml: control file of another layout\n");
        control = NULL;
    }
}

__attribute__((constructor)) static void load(void) {
    fake_nvml_use(getenv("FAKE_NVML_CONTROL"), getenv("FAKE_NVML_CALLS"));
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

/* What the script says of this call: waits while it hangs, then its code. */
static int scripted(const char *function, int64_t gpu) {
    int code = SUCCESS;
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

static int enter(const char *function, int64_t gpu) {
    count_call(function, gpu);
    if (control == NULL) return UNINITIALIZED;
    if (loaded_ns < control->upgraded_at_ns) return LIB_RM_VERSION_MISMATCH;
    if (initialized_ns <= control->uninitialized_at_ns) return UNINITIALIZED;
    return scripted(function, gpu);
}

/* Handles are index + 1, so that NULL stays invalid. */
static int64_t index_of(void *handle) { return (int64_t)(intptr_t)handle - 1; }

#define ENTER(function, handle)                                                    \
    int64_t index = index_of(handle);                                              \
    if (control == NULL) return UNINITIALIZED;                                     \
    if (index < 0 || index >= control->gpu_count) return INVALID_ARGUMENT;         \
    const volatile struct gpu *gpu = &control->gpus[index];                        \
    (void)gpu;                                                                     \
    int code = enter(function, index);                                             \
    if (code != SUCCESS) return code;

static double power_w(const volatile struct gpu *gpu, int64_t t_ns) {
    double power = gpu->segments[0].power_w;
    for (int64_t i = 1; i < gpu->segment_count && gpu->segments[i].from_ns <= t_ns; i++)
        power = gpu->segments[i].power_w;
    return power;
}

static double integral_j(const volatile struct gpu *gpu, int64_t start_ns, int64_t end_ns) {
    double joules = 0;
    int64_t at = start_ns;
    for (int64_t i = 0; i < gpu->segment_count && at < end_ns; i++) {
        int64_t next = i + 1 < gpu->segment_count ? gpu->segments[i + 1].from_ns : INT64_MAX;
        if (next <= at) continue;
        int64_t until = next < end_ns ? next : end_ns;
        joules += gpu->segments[i].power_w * (double)(until - at) / 1e9;
        at = until;
    }
    return joules;
}

int nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    count_call("nvmlInitWithFlags", -1);
    if (control == NULL) return DRIVER_NOT_LOADED;
    if (loaded_ns < control->upgraded_at_ns) return LIB_RM_VERSION_MISMATCH;
    int code = scripted("nvmlInitWithFlags", -1);
    if (code == SUCCESS) initialized_ns = host_ns();
    return code;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int code) {
    static __thread char text[40];
    snprintf(text, sizeof text, "fake NVML error %d", code);
    return text;
}

static int copy(const volatile char *from, char *to, unsigned int length) {
    if (strlen((const char *)from) + 1 > length) return INSUFFICIENT_SIZE;
    strcpy(to, (const char *)from);
    return SUCCESS;
}

int nvmlSystemGetDriverVersion(char *version, unsigned int length) {
    int code = enter("nvmlSystemGetDriverVersion", -1);
    return code != SUCCESS ? code : copy(control->driver_version, version, length);
}

int nvmlSystemGetNVMLVersion(char *version, unsigned int length) {
    int code = enter("nvmlSystemGetNVMLVersion", -1);
    return code != SUCCESS ? code : copy(control->nvml_version, version, length);
}

int nvmlDeviceGetCount_v2(unsigned int *count) {
    int code = enter("nvmlDeviceGetCount_v2", -1);
    if (code != SUCCESS) return code;
    *count = (unsigned int)control->gpu_count;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **handle) {
    if (control == NULL) return UNINITIALIZED;
    if (index >= control->gpu_count) return INVALID_ARGUMENT;
    int code = enter("nvmlDeviceGetHandleByIndex_v2", index);
    if (code == SUCCESS) *handle = (void *)(intptr_t)(index + 1);
    return code;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    if (control == NULL) return UNINITIALIZED;
    for (int64_t i = 0; i < control->gpu_count; i++) {
        if (strcmp((const char *)control->gpus[i].uuid, uuid) != 0) continue;
        int code = enter("nvmlDeviceGetHandleByUUID", i);
        if (code == SUCCESS) *handle = (void *)(intptr_t)(i + 1);
        return code;
    }
    return NOT_FOUND;
}

int nvmlDeviceGetName(void *handle, char *name, unsigned int length) {
    ENTER("nvmlDeviceGetName", handle)
    return copy(gpu->name, name, length);
}

int nvmlDeviceGetUUID(void *handle, char *uuid, unsigned int length) {
    ENTER("nvmlDeviceGetUUID", handle)
    return copy(gpu->uuid, uuid, length);
}

struct memory { unsigned long long total, free, used; };

int nvmlDeviceGetMemoryInfo(void *handle, struct memory *memory) {
    ENTER("nvmlDeviceGetMemoryInfo", handle)
    memory->total = gpu->mem_total_bytes;
    memory->used = gpu->mem_used_bytes + gpu->mem_reserved_bytes;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

struct memory_v2 { unsigned int version; unsigned long long total, reserved, free, used; };

int nvmlDeviceGetMemoryInfo_v2(void *handle, struct memory_v2 *memory) {
    ENTER("nvmlDeviceGetMemoryInfo_v2", handle)
    memory->total = gpu->mem_total_bytes;
    memory->reserved = gpu->mem_reserved_bytes;
    memory->used = gpu->mem_used_bytes;
    memory->free = memory->total - memory->used - memory->reserved;
    return SUCCESS;
}

int nvmlDeviceGetPowerUsage(void *handle, unsigned int *milliwatts) {
    ENTER("nvmlDeviceGetPowerUsage", handle)
    *milliwatts = (unsigned int)(power_w(gpu, now_ns()) * 1000);
    return SUCCESS;
}

int nvmlDeviceGetTotalEnergyConsumption(void *handle, unsigned long long *millijoules) {
    ENTER("nvmlDeviceGetTotalEnergyConsumption", handle)
    int64_t step = gpu->counter_step_ns > 0 ? gpu->counter_step_ns : 1;
    int64_t until = now_ns() / step * step;
    *millijoules = gpu->counter_base_mj
                 + (unsigned long long)(integral_j(gpu, gpu->counter_zero_ns, until) * 1000);
    return SUCCESS;
}

struct utilization { unsigned int gpu, memory; };

int nvmlDeviceGetUtilizationRates(void *handle, struct utilization *utilization) {
    ENTER("nvmlDeviceGetUtilizationRates", handle)
    utilization->gpu = (unsigned int)gpu->util_pct;
    utilization->memory = (unsigned int)gpu->mem_util_pct;
    return SUCCESS;
}

int nvmlDeviceGetTemperature(void *handle, unsigned int sensor, unsigned int *temperature) {
    ENTER("nvmlDeviceGetTemperature", handle)
    if (sensor != 0) return INVALID_ARGUMENT;
    *temperature = (unsigned int)gpu->temp_c;
    return SUCCESS;
}

struct temperature { unsigned int version, sensor; int temperature; };

int nvmlDeviceGetTemperatureV(void *handle, struct temperature *temperature) {
    ENTER("nvmlDeviceGetTemperatureV", handle)
    if (temperature->sensor != 0) return INVALID_ARGUMENT;
    temperature->temperature = (int)gpu->temp_c;
    return SUCCESS;
}

int nvmlDeviceGetClockInfo(void *handle, unsigned int type, unsigned int *clock_mhz) {
    ENTER("nvmlDeviceGetClockInfo", handle)
    if (type != 1 && type != 2) return NOT_SUPPORTED;
    *clock_mhz = (unsigned int)(type == 1 ? gpu->sm_clock_mhz : gpu->mem_clock_mhz);
    return SUCCESS;
}

int nvmlDeviceGetCurrentClocksEventReasons(void *handle, unsigned long long *reasons) {
    ENTER("nvmlDeviceGetCurrentClocksEventReasons", handle)
    *reasons = gpu->event_reasons;
    return SUCCESS;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *handle, unsigned long long *reasons) {
    ENTER("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    *reasons = gpu->event_reasons;
    return SUCCESS;
}

struct violation { unsigned long long reference_us, violation_ns; };

int nvmlDeviceGetViolationStatus(void *handle, unsigned int policy, struct violation *violation) {
    ENTER("nvmlDeviceGetViolationStatus", handle)
    if (policy > 1) return NOT_SUPPORTED;
    int64_t now = now_ns();
    violation->reference_us = (unsigned long long)(now / 1000);
    violation->violation_ns = gpu->throttle_base_ns[policy]
        + (unsigned long long)(gpu->throttle_share[policy] * (double)(now - gpu->throttle_since_ns));
    return SUCCESS;
}

struct process { unsigned int pid; unsigned long long memory; unsigned int gpu_instance, compute_instance; };

static int list(const volatile uint64_t *pids, int64_t count, unsigned int *room,
                struct process *processes) {
    unsigned int had = *room;
    *room = (unsigned int)count;
    if (count == 0) return SUCCESS;
    if (had < count || processes == NULL) return INSUFFICIENT_SIZE;
    for (int64_t i = 0; i < count; i++) {
        memset(&processes[i], 0, sizeof processes[i]);
        processes[i].pid = (unsigned int)pids[i];
        processes[i].memory = 1 << 20;
    }
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned int *room, struct process *out) {
    ENTER("nvmlDeviceGetComputeRunningProcesses_v3", handle)
    return list(gpu->pids, gpu->pid_count, room, out);
}

int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *handle, unsigned int *room,
                                               struct process *out) {
    ENTER("nvmlDeviceGetMPSComputeRunningProcesses_v3", handle)
    return list(gpu->mps_pids, gpu->mps_pid_count, room, out);
}

struct process_utilization {
    unsigned int pid;
    unsigned long long time_us;
    unsigned int sm_pct, mem_pct, enc_pct, dec_pct;
};

int nvmlDeviceGetProcessUtilization(void *handle, struct process_utilization *out,
                                    unsigned int *room, unsigned long long since_us) {
    ENTER("nvmlDeviceGetProcessUtilization", handle)
    (void)since_us;
    unsigned int had = *room;
    *room = (unsigned int)gpu->busy_pid_count;
    if (gpu->busy_pid_count == 0) return NOT_FOUND;
    if (out == NULL || had < *room) return INSUFFICIENT_SIZE;
    for (int64_t i = 0; i < gpu->busy_pid_count; i++) {
        memset(&out[i], 0, sizeof out[i]);
        out[i].pid = (unsigned int)gpu->busy_pids[i];
        out[i].sm_pct = 50;
    }
    return SUCCESS;
}

int nvmlDeviceGetTotalEccErrors(void *handle, unsigned int error_type, unsigned int counter_type,
                                unsigned long long *errors) {
    ENTER("nvmlDeviceGetTotalEccErrors", handle)
    *errors = error_type == 1 && counter_type == 0 ? gpu->ecc_uncorrected : 0;
    return SUCCESS;
}

struct field {
    unsigned int id, scope;
    long long timestamp_us, latency_us;
    unsigned int value_type, code;
    union { double d; unsigned int ui; unsigned long long ull; } value;
};

enum { FIELD_POWER_AVERAGE = 185, FIELD_POWER_INSTANT = 186, TYPE_UNSIGNED_INT = 1 };

int nvmlDeviceGetFieldValues(void *handle, int count, struct field *fields) {
    ENTER("nvmlDeviceGetFieldValues", handle)
    int64_t now = now_ns();
    for (int i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "field:%u", fields[i].id);
        double watts;
        if (fields[i].id == FIELD_POWER_AVERAGE) watts = integral_j(gpu, now - 1000000000, now);
        else if (fields[i].id == FIELD_POWER_INSTANT) watts = power_w(gpu, now);
        else { fields[i].code = NOT_SUPPORTED; continue; }
        fields[i].code = (unsigned int)scripted(name, index);
        fields[i].timestamp_us = now / 1000;
        fields[i].value_type = TYPE_UNSIGNED_INT;
        fields[i].value.ui = (unsigned int)(watts * 1000);
    }
    return SUCCESS;
}
