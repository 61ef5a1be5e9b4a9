/* A fake NVIDIA management library: the functions that pynvml calls, scripted by a mapped file.
 *
 * The control file (FAKE_NVML_CONTROL) is opened read-only and may be changed by the test at any
 * time; fakes/c_structures.py reads its layout from here. Time is CLOCK_MONOTONIC, or the control file's
 * simulated_ns. Power is a step function of time. Sensor errors are scripted too: a reading is the
 * mean over a window that ends at the last update (25 of 100 ms, or 1 s) times a gain; the energy
 * counter is the integral, advances in steps, and loses a share of the energy between two readings
 * in quick succession. If FAKE_NVML_CALLS is set, every call is counted there. A process that has
 * loaded the library may switch to other files by fake_nvml_use. Without a control file the library
 * behaves like one without a driver.
 */
#include "../script_types.h"

#define MAX_MIGS 8

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6,
       INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, LIB_RM_VERSION_MISMATCH = 18 };

struct mig {
    char name[NAME_LENGTH];
    char uuid[NAME_LENGTH];
    uint64_t slices; /* of its GPU instance */
    uint64_t compute_slices;
    uint64_t mem_total_bytes;
    uint64_t mem_used_bytes;
    int64_t pid_count;
    uint64_t pids[MAX_PIDS];
};

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
    uint64_t power_limit_mw;
    uint64_t power_limit_max_mw; /* 0: not reported */
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
    uint64_t busy_pcts[MAX_PIDS];
    int64_t graphics_pid_count;
    uint64_t graphics_pids[MAX_PIDS];
    int64_t unfilled_count;
    double module_extra_w;   /* what a module draws more than its GPU; 0: it is no module */
    double counter_extra_w;  /* what the counter without a scope counts more than the GPU */
    int64_t has_no_gpu_power;
    int64_t counts_by_scope;
    int64_t ignores_scope;
    double gain;
    int64_t power_period_ns;
    int64_t power_window_ns;
    int64_t average_period_ns;
    int64_t average_window_ns;
    int64_t samples_period_ns;
    int64_t samples_kept;
    int64_t counter_gap_ns;
    double counter_loss;
    int64_t persistence_mode;
    int64_t compute_mode;
    int64_t mig_mode;
    struct mig migs[MAX_MIGS];
};

struct control {
    uint64_t size;
    int64_t simulated_ns;
    int64_t utc_offset_ns;
    int64_t gpu_count;
    char driver_version[NAME_LENGTH];
    char nvml_version[NAME_LENGTH];
    int64_t process_record_bytes;
    int64_t upgraded_at_ns;
    int64_t rule_count;
    struct rule rules[MAX_RULES];
    struct gpu gpus[MAX_GPUS];
};

#include "../script.h"

static int64_t counter_read_ns[MAX_GPUS];
static double counter_lost_j[MAX_GPUS];

void fake_nvml_use(const char *control_path, const char *counts_path) {
    memset(counter_read_ns, 0, sizeof counter_read_ns);
    memset(counter_lost_j, 0, sizeof counter_lost_j);
    use_files(control_path, counts_path);
}

__attribute__((constructor)) static void load(void) {
    fake_nvml_use(getenv("FAKE_NVML_CONTROL"), getenv("FAKE_NVML_CALLS"));
}

static int enter(const char *function, int64_t gpu) {
    count_call(function, gpu);
    if (control == NULL) return UNINITIALIZED;
    if (loaded_ns < control->upgraded_at_ns) return LIB_RM_VERSION_MISMATCH;
    return scripted(function, gpu);
}

/* Handles are index + 1, so that NULL stays invalid; a MIG device's has its own index above it. */
static int64_t index_of(void *handle) { return ((int64_t)(intptr_t)handle & 0xff) - 1; }
static int64_t mig_of(void *handle) { return ((int64_t)(intptr_t)handle >> 8) - 1; }

/* Metrics of the whole board only. */
#define ENTER_BOARD(function, handle)                                              \
    if (mig_of(handle) >= 0) return NOT_SUPPORTED;                                 \
    ENTER(function, handle)

#define ENTER(function, handle)                                                    \
    int64_t index = index_of(handle);                                              \
    if (control == NULL) return UNINITIALIZED;                                     \
    if (index < 0 || index >= control->gpu_count) return INVALID_ARGUMENT;         \
    const volatile struct gpu *gpu = &control->gpus[index];                        \
    int64_t mig_index = mig_of(handle);                                            \
    const volatile struct mig *mig = mig_index < 0 ? NULL : &gpu->migs[mig_index]; \
    (void)gpu;                                                                     \
    /* The handle of a MIG device that was destroyed. */                           \
    if (mig != NULL && (!gpu->mig_mode || mig->slices == 0)) return INVALID_ARGUMENT; \
    int code = enter(function, index);                                             \
    if (code != SUCCESS) return code;                                              \
    if (mig != NULL && (!gpu->mig_mode || !mig->slices)) return NOT_FOUND;

/* What a sensor shows: the mean over its window at its last update, with the board's gain. */
static double sensed_w(const volatile struct gpu *gpu, int64_t t_ns, int64_t period_ns,
                       int64_t window_ns) {
    int64_t at = period_ns > 0 ? t_ns / period_ns * period_ns : t_ns;
    double watts = window_ns > 0 ? integral_j(gpu, at - window_ns, at) * 1e9 / (double)window_ns
                                 : power_w(gpu, at);
    return watts * gpu->gain;
}

/* The CPU's time as the driver stamps its samples with it. */
static int64_t utc_ns(int64_t t_ns) {
    if (control->simulated_ns != 0) return t_ns + control->utc_offset_ns;
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec - host_ns() + t_ns;
}

int nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    count_call("nvmlInitWithFlags", -1);
    if (control == NULL) return DRIVER_NOT_LOADED;
    if (loaded_ns < control->upgraded_at_ns) return LIB_RM_VERSION_MISMATCH;
    int code = scripted("nvmlInitWithFlags", -1);
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
    for (int64_t i = 0; i < control->gpu_count * MAX_MIGS; i++) {
        const volatile struct gpu *gpu = &control->gpus[i / MAX_MIGS];
        const volatile struct mig *mig = &gpu->migs[i % MAX_MIGS];
        if (!gpu->mig_mode || strcmp((const char *)mig->uuid, uuid) != 0) continue;
        int code = enter("nvmlDeviceGetHandleByUUID", i / MAX_MIGS);
        if (code == SUCCESS)
            *handle = (void *)(intptr_t)((i / MAX_MIGS + 1) | ((i % MAX_MIGS + 1) << 8));
        return code;
    }
    return NOT_FOUND;
}

int nvmlDeviceGetIndex(void *handle, unsigned int *found) {
    ENTER_BOARD("nvmlDeviceGetIndex", handle)
    *found = (unsigned int)index;
    return SUCCESS;
}

int nvmlDeviceGetName(void *handle, char *name, unsigned int length) {
    ENTER("nvmlDeviceGetName", handle)
    return copy(mig == NULL ? gpu->name : mig->name, name, length);
}

int nvmlDeviceGetUUID(void *handle, char *uuid, unsigned int length) {
    ENTER("nvmlDeviceGetUUID", handle)
    return copy(mig == NULL ? gpu->uuid : mig->uuid, uuid, length);
}

struct memory { unsigned long long total, free, used; };

int nvmlDeviceGetMemoryInfo(void *handle, struct memory *memory) {
    ENTER("nvmlDeviceGetMemoryInfo", handle)
    memory->total = mig == NULL ? gpu->mem_total_bytes : mig->mem_total_bytes;
    memory->used = mig == NULL ? gpu->mem_used_bytes + gpu->mem_reserved_bytes
                               : mig->mem_used_bytes;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

struct memory_v2 { unsigned int version; unsigned long long total, reserved, free, used; };

int nvmlDeviceGetMemoryInfo_v2(void *handle, struct memory_v2 *memory) {
    ENTER("nvmlDeviceGetMemoryInfo_v2", handle)
    memory->total = mig == NULL ? gpu->mem_total_bytes : mig->mem_total_bytes;
    memory->reserved = mig == NULL ? gpu->mem_reserved_bytes : 0;
    memory->used = mig == NULL ? gpu->mem_used_bytes : mig->mem_used_bytes;
    memory->free = memory->total - memory->used - memory->reserved;
    return SUCCESS;
}

int nvmlDeviceGetPowerUsage(void *handle, unsigned int *milliwatts) {
    ENTER_BOARD("nvmlDeviceGetPowerUsage", handle)
    if (gpu->has_no_gpu_power) return NOT_SUPPORTED;
    *milliwatts = (unsigned int)(sensed_w(gpu, now_ns(), gpu->power_period_ns,
                                          gpu->power_window_ns) * 1000);
    return SUCCESS;
}

/* The energy counter of a GPU and of something more that draws a constant power. */
static unsigned long long counted_mj(const volatile struct gpu *gpu, int64_t index, double more_w) {
    int64_t step = gpu->counter_step_ns > 0 ? gpu->counter_step_ns : 1;
    int64_t now = now_ns(), until = now / step * step, last = counter_read_ns[index];
    if (last != 0 && now - last < gpu->counter_gap_ns)
        counter_lost_j[index] += gpu->counter_loss * integral_j(gpu, last, now);
    counter_read_ns[index] = now;
    double joules = integral_j(gpu, gpu->counter_zero_ns, until) - counter_lost_j[index];
    /* A module that has run for an hour has counted that much more already. */
    joules += more_w * (3600 + (double)(until - gpu->counter_zero_ns) / 1e9);
    return gpu->counter_base_mj + (unsigned long long)(joules * gpu->gain * 1000);
}

int nvmlDeviceGetTotalEnergyConsumption(void *handle, unsigned long long *millijoules) {
    ENTER_BOARD("nvmlDeviceGetTotalEnergyConsumption", handle)
    *millijoules = counted_mj(gpu, index, gpu->counter_extra_w);
    return SUCCESS;
}

struct utilization { unsigned int gpu, memory; };

int nvmlDeviceGetUtilizationRates(void *handle, struct utilization *utilization) {
    ENTER_BOARD("nvmlDeviceGetUtilizationRates", handle)
    if (gpu->mig_mode) return NOT_SUPPORTED;
    utilization->gpu = (unsigned int)gpu->util_pct;
    utilization->memory = (unsigned int)gpu->mem_util_pct;
    return SUCCESS;
}

int nvmlDeviceGetTemperature(void *handle, unsigned int sensor, unsigned int *temperature) {
    ENTER_BOARD("nvmlDeviceGetTemperature", handle)
    if (sensor != 0) return INVALID_ARGUMENT;
    *temperature = (unsigned int)gpu->temp_c;
    return SUCCESS;
}

struct temperature { unsigned int version, sensor; int temperature; };

int nvmlDeviceGetTemperatureV(void *handle, struct temperature *temperature) {
    ENTER_BOARD("nvmlDeviceGetTemperatureV", handle)
    if (temperature->sensor != 0) return INVALID_ARGUMENT;
    temperature->temperature = (int)gpu->temp_c;
    return SUCCESS;
}

int nvmlDeviceGetClockInfo(void *handle, unsigned int type, unsigned int *clock_mhz) {
    ENTER_BOARD("nvmlDeviceGetClockInfo", handle)
    if (type != 1 && type != 2) return NOT_SUPPORTED;
    *clock_mhz = (unsigned int)(type == 1 ? gpu->sm_clock_mhz : gpu->mem_clock_mhz);
    return SUCCESS;
}

int nvmlDeviceGetEnforcedPowerLimit(void *handle, unsigned int *limit_mw) {
    ENTER_BOARD("nvmlDeviceGetEnforcedPowerLimit", handle)
    *limit_mw = (unsigned int)gpu->power_limit_mw;
    return SUCCESS;
}

int nvmlDeviceGetPowerManagementLimitConstraints(void *handle, unsigned int *least_mw,
                                                 unsigned int *most_mw) {
    ENTER_BOARD("nvmlDeviceGetPowerManagementLimitConstraints", handle)
    if (gpu->power_limit_max_mw == 0) return NOT_SUPPORTED;
    *least_mw = 100000;
    *most_mw = (unsigned int)gpu->power_limit_max_mw;
    return SUCCESS;
}

int nvmlDeviceGetCurrentClocksEventReasons(void *handle, unsigned long long *reasons) {
    ENTER_BOARD("nvmlDeviceGetCurrentClocksEventReasons", handle)
    *reasons = gpu->event_reasons;
    return SUCCESS;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *handle, unsigned long long *reasons) {
    ENTER_BOARD("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    *reasons = gpu->event_reasons;
    return SUCCESS;
}

struct violation { unsigned long long reference_us, violation_ns; };

int nvmlDeviceGetViolationStatus(void *handle, unsigned int policy, struct violation *violation) {
    ENTER_BOARD("nvmlDeviceGetViolationStatus", handle)
    if (policy > 1) return NOT_SUPPORTED;
    int64_t now = now_ns();
    violation->reference_us = (unsigned long long)(now / 1000);
    violation->violation_ns = gpu->throttle_base_ns[policy]
        + (unsigned long long)(gpu->throttle_share[policy] * (double)(now - gpu->throttle_since_ns));
    return SUCCESS;
}

/* Of R535: the record of other drivers ends before the protected memory. */
struct process {
    unsigned int pid;
    unsigned long long memory;
    unsigned int gpu_instance, compute_instance;
    unsigned long long protected_memory;
};

static int list(const volatile uint64_t *pids, int64_t count, unsigned int *room,
                char *processes) {
    unsigned int had = *room;
    *room = (unsigned int)count;
    if (count == 0) return SUCCESS;
    if (had < count || processes == NULL) return INSUFFICIENT_SIZE;
    size_t size = control->process_record_bytes ? (size_t)control->process_record_bytes : 24;
    for (int64_t i = 0; i < count; i++) {
        struct process process = {(unsigned int)pids[i], 1 << 20, 0xffffffff, 0xffffffff, 0};
        memcpy(processes + (size_t)i * size, &process, size);
    }
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned int *room, char *out) {
    ENTER("nvmlDeviceGetComputeRunningProcesses_v3", handle)
    return mig == NULL ? list(gpu->pids, gpu->pid_count, room, out)
                       : list(mig->pids, mig->pid_count, room, out);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void *handle, unsigned int *room, char *out) {
    ENTER_BOARD("nvmlDeviceGetGraphicsRunningProcesses_v3", handle)
    return list(gpu->graphics_pids, gpu->graphics_pid_count, room, out);
}

int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *handle, unsigned int *room, char *out) {
    ENTER("nvmlDeviceGetMPSComputeRunningProcesses_v3", handle)
    return list(gpu->mps_pids, mig == NULL ? gpu->mps_pid_count : 0, room, out);
}

int nvmlDeviceGetComputeRunningProcesses_v2(void *handle, unsigned int *room, char *out) {
    ENTER("nvmlDeviceGetComputeRunningProcesses_v2", handle)
    return mig == NULL ? list(gpu->pids, gpu->pid_count, room, out)
                       : list(mig->pids, mig->pid_count, room, out);
}

struct process_utilization {
    unsigned int pid;
    unsigned long long time_us;
    unsigned int sm_pct, mem_pct, enc_pct, dec_pct;
};

int nvmlDeviceGetProcessUtilization(void *handle, struct process_utilization *out,
                                    unsigned int *room, unsigned long long since_us) {
    ENTER_BOARD("nvmlDeviceGetProcessUtilization", handle)
    (void)since_us;
    if (gpu->mig_mode) return NOT_SUPPORTED;
    unsigned int had = *room;
    *room = (unsigned int)(gpu->busy_pid_count + gpu->unfilled_count);
    if (*room == 0) return NOT_FOUND;
    if (out == NULL || had < *room) return INSUFFICIENT_SIZE;
    /* Rows that the driver counts but never fills: what its memory held before. */
    for (int64_t i = gpu->busy_pid_count; i < *room; i++) {
        static const struct process_utilization left[] = {
            {0xdeadbeef, 0, 2147483632, 0, 0, 0},
            {0, 0, 40, 0, 0, 0},
            {3735928, 0, 77, 0, 0, 0},
            {0, 0, 0xffffffff, 0xffffffff, 0, 0},
        };
        out[i] = left[i % 4];
        if (i % 4 == 3) out[i].pid = (unsigned int)gpu->pids[0];
    }
    for (int64_t i = 0; i < gpu->busy_pid_count; i++) {
        memset(&out[i], 0, sizeof out[i]);
        out[i].pid = (unsigned int)gpu->busy_pids[i];
        out[i].time_us = (unsigned long long)(utc_ns(now_ns()) / 1000);
        out[i].sm_pct = (unsigned int)(gpu->busy_pcts[i] ? gpu->busy_pcts[i] : 50);
    }
    return SUCCESS;
}

int nvmlDeviceGetTotalEccErrors(void *handle, unsigned int error_type, unsigned int counter_type,
                                unsigned long long *errors) {
    ENTER_BOARD("nvmlDeviceGetTotalEccErrors", handle)
    *errors = error_type == 1 && counter_type == 0 ? gpu->ecc_uncorrected : 0;
    return SUCCESS;
}

struct field {
    unsigned int id, scope;
    long long timestamp_us, latency_us;
    unsigned int value_type, code;
    union { double d; unsigned int ui; unsigned long long ull; } value;
};

enum { FIELD_POWER_AVERAGE = 185, FIELD_POWER_INSTANT = 186, FIELD_ENERGY = 191,
       TYPE_UNSIGNED_INT = 1, TYPE_UNSIGNED_LONG_LONG = 3, SCOPE_GPU = 0, SCOPE_MODULE = 1 };

int nvmlDeviceGetFieldValues(void *handle, int count, struct field *fields) {
    ENTER_BOARD("nvmlDeviceGetFieldValues", handle)
    int64_t now = now_ns();
    for (int i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "field:%u", fields[i].id);
        int is_module = fields[i].scope == SCOPE_MODULE && !gpu->ignores_scope;
        double watts;
        fields[i].code = NOT_SUPPORTED;
        if (fields[i].scope > SCOPE_MODULE || (is_module && gpu->module_extra_w == 0)) continue;
        if (fields[i].id == FIELD_ENERGY) {
            if (!gpu->counts_by_scope) continue;
            fields[i].code = (unsigned int)scripted(name, index);
            fields[i].value_type = TYPE_UNSIGNED_LONG_LONG;
            fields[i].value.ull = counted_mj(gpu, index, is_module ? gpu->module_extra_w : 0);
            continue;
        }
        if (!is_module && gpu->has_no_gpu_power) continue;
        if (fields[i].id == FIELD_POWER_AVERAGE)
            watts = sensed_w(gpu, now, gpu->average_period_ns, gpu->average_window_ns);
        else if (fields[i].id == FIELD_POWER_INSTANT)
            watts = sensed_w(gpu, now, gpu->power_period_ns, gpu->power_window_ns);
        else continue;
        fields[i].code = (unsigned int)scripted(name, index);
        fields[i].timestamp_us = now / 1000;
        fields[i].value_type = TYPE_UNSIGNED_INT;
        watts += is_module ? gpu->module_extra_w : 0;
        fields[i].value.ui = (unsigned int)(watts * 1000);
    }
    return SUCCESS;
}

struct sample { unsigned long long time_us; union { double d; unsigned int ui; } value; };

/* The driver's buffer of past power: the last `samples_kept` at one every `samples_period_ns`. */
int nvmlDeviceGetSamples(void *handle, unsigned int type, unsigned long long seen_us,
                         unsigned int *value_type, unsigned int *room, struct sample *out) {
    ENTER_BOARD("nvmlDeviceGetSamples", handle)
    int is_module = type == 7;
    if ((type != 0 && !is_module) || gpu->samples_period_ns == 0) return NOT_SUPPORTED;
    if (is_module && gpu->module_extra_w == 0) return NOT_SUPPORTED;
    *value_type = TYPE_UNSIGNED_INT;
    int64_t now = now_ns(), last = now / gpu->samples_period_ns;
    unsigned int had = *room, count = 0;
    for (int64_t k = last - gpu->samples_kept + 1; k <= last; k++) {
        int64_t at = k * gpu->samples_period_ns;
        unsigned long long time_us = (unsigned long long)(utc_ns(at) / 1000);
        if (time_us <= seen_us) continue;
        if (out != NULL && count < had) {
            out[count].time_us = time_us;
            double watts = sensed_w(gpu, at, 0, gpu->samples_period_ns);
            out[count].value.ui =
                (unsigned int)((watts + (is_module ? gpu->module_extra_w : 0)) * 1000);
        }
        count++;
    }
    *room = out == NULL || count < had ? count : had;
    return count == 0 ? NOT_FOUND : SUCCESS;
}

int nvmlDeviceGetMigMode(void *handle, unsigned int *current, unsigned int *pending) {
    ENTER_BOARD("nvmlDeviceGetMigMode", handle)
    *current = *pending = (unsigned int)gpu->mig_mode;
    return SUCCESS;
}

int nvmlDeviceGetPersistenceMode(void *handle, unsigned int *mode) {
    ENTER_BOARD("nvmlDeviceGetPersistenceMode", handle)
    *mode = (unsigned int)gpu->persistence_mode;
    return SUCCESS;
}

int nvmlDeviceGetComputeMode(void *handle, unsigned int *mode) {
    ENTER_BOARD("nvmlDeviceGetComputeMode", handle)
    *mode = (unsigned int)gpu->compute_mode;
    return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned int *count) {
    ENTER_BOARD("nvmlDeviceGetMaxMigDeviceCount", handle)
    *count = MAX_MIGS - 1;
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned int mig_number, void **found) {
    ENTER_BOARD("nvmlDeviceGetMigDeviceHandleByIndex", handle)
    if (mig_number >= MAX_MIGS) return INVALID_ARGUMENT;
    if (!gpu->mig_mode || gpu->migs[mig_number].slices == 0) return NOT_FOUND;
    *found = (void *)(intptr_t)((index + 1) | ((int64_t)(mig_number + 1) << 8));
    return SUCCESS;
}

int nvmlDeviceGetGpuInstanceId(void *handle, unsigned int *id) {
    ENTER("nvmlDeviceGetGpuInstanceId", handle)
    if (mig == NULL) return NOT_SUPPORTED;
    /* As of an instance of one slice; nothing refers to the number of another one. */
    *id = (unsigned int)mig_index + 7;
    return SUCCESS;
}

struct attributes {
    unsigned int multiprocessors, copy_engines, decoders, encoders, jpegs, ofas, gpu_slices,
        compute_slices;
    unsigned long long memory_mb;
};

int nvmlDeviceGetAttributes_v2(void *handle, struct attributes *attributes) {
    ENTER("nvmlDeviceGetAttributes_v2", handle)
    if (mig == NULL) return NOT_SUPPORTED;
    memset(attributes, 0, sizeof *attributes);
    attributes->gpu_slices = (unsigned int)mig->slices;
    attributes->compute_slices = (unsigned int)mig->compute_slices;
    attributes->memory_mb = mig->mem_total_bytes >> 20;
    return SUCCESS;
}
