/* A fake AMD SMI library (libamd_smi.so), scripted by a mapped file as the fake NVML is.
 *
 * Its declarations are those of amdsmi.h of version 26.1 (ROCm/rocm-systems,
 * projects/amdsmi/include/amd_smi/amdsmi.h), with the names there. Without a control file it behaves like one
 * without a driver. A board is a socket with one device, or with one for each partition. Values that a board
 * lacks have the largest number of their field, as the library fills them in.
 */
#include "../script_types.h"

#define MAX_PARTITIONS 8
#define AMDSMI_MAX_STRING_LENGTH 256

typedef uint32_t amdsmi_status_t;
enum { SUCCESS = 0, INVAL = 1, NOT_SUPPORTED = 2, OUT_OF_RESOURCES = 15, NOT_FOUND = 31, NOT_INIT = 32,
       DRIVER_NOT_LOADED = 34 };

typedef void *amdsmi_socket_handle;
typedef void *amdsmi_processor_handle;

typedef struct {
    uint32_t major, minor, release;
    const char *build;
} amdsmi_version_t;

/* Of 25 and before. */
typedef struct {
    uint32_t year, major, minor, release;
    const char *build;
} amdsmi_version_with_year_t;

typedef struct {
    char market_name[AMDSMI_MAX_STRING_LENGTH];
    uint32_t vendor_id;
    char vendor_name[AMDSMI_MAX_STRING_LENGTH];
    uint32_t subvendor_id;
    uint64_t device_id;
    uint32_t rev_id;
    char asic_serial[AMDSMI_MAX_STRING_LENGTH];
    uint32_t oam_id;
    uint32_t num_of_compute_units;
    uint64_t target_graphics_version;
    uint32_t subsystem_id;
    uint32_t reserved[21];
} amdsmi_asic_info_t;

typedef struct {
    char model_number[AMDSMI_MAX_STRING_LENGTH];
    char product_serial[AMDSMI_MAX_STRING_LENGTH];
    char fru_id[AMDSMI_MAX_STRING_LENGTH];
    char product_name[AMDSMI_MAX_STRING_LENGTH];
    char manufacturer_name[AMDSMI_MAX_STRING_LENGTH];
    uint64_t reserved[64];
} amdsmi_board_info_t;

typedef struct {
    uint32_t drm_render, drm_card, hsa_id, hip_id;
    char hip_uuid[AMDSMI_MAX_STRING_LENGTH];
} amdsmi_enumeration_info_t;

typedef struct {
    uint64_t socket_power;
    uint32_t current_socket_power;
    uint32_t average_socket_power;
    uint64_t gfx_voltage;
    uint64_t soc_voltage;
    uint64_t mem_voltage;
    uint32_t power_limit;
    uint64_t reserved[18];
} amdsmi_power_info_t;

typedef struct {
    uint64_t power_cap;
    uint64_t default_power_cap;
    uint64_t dpm_cap;
    uint64_t min_power_cap;
    uint64_t max_power_cap;
    uint64_t reserved[3];
} amdsmi_power_cap_info_t;

typedef struct {
    uint32_t gfx_activity;
    uint32_t umc_activity;
    uint32_t mm_activity;
    uint32_t reserved[13];
} amdsmi_engine_usage_t;

typedef struct {
    uint32_t clk;
    uint32_t min_clk;
    uint32_t max_clk;
    uint8_t clk_locked;
    uint8_t clk_deep_sleep;
    uint32_t reserved[4];
} amdsmi_clk_info_t;

typedef struct {
    uint64_t correctable_count;
    uint64_t uncorrectable_count;
    uint64_t deferred_count;
    uint64_t reserved[5];
} amdsmi_error_count_t;

/* With what follows of the structure of 26 as it is. */
typedef struct {
    uint64_t reference_timestamp;
    uint64_t violation_timestamp;
    uint64_t acc_counter;
    uint64_t acc_prochot_thrm;
    uint64_t acc_ppt_pwr;
    uint64_t acc_socket_thrm;
    uint64_t acc_vr_thrm;
    uint64_t acc_hbm_thrm;
    uint8_t rest[6016 - 64];
} amdsmi_violation_status_t;

typedef struct {
    char name[AMDSMI_MAX_STRING_LENGTH];
    uint32_t pid;
    uint64_t mem;
    struct { uint64_t gfx, enc; uint32_t reserved[12]; } engine_usage;
    struct { uint64_t gtt_mem, cpu_mem, vram_mem; uint32_t reserved[10]; } memory_usage;
    char container_name[AMDSMI_MAX_STRING_LENGTH];
    uint32_t cu_occupancy;
    uint32_t evicted_time;
    uint32_t reserved[10];
} amdsmi_proc_info_t;

struct partition {
    uint64_t mem_total_bytes;
    uint64_t mem_used_bytes;
    int64_t pid_count;
    uint64_t pids[MAX_PIDS];
    int64_t user_count; /* of these the first have memory here */
};

struct gpu {
    char name[NAME_LENGTH];
    char serial[NAME_LENGTH];
    char product_name[NAME_LENGTH];
    uint64_t bdf;
    uint64_t device_id;
    uint64_t hip_id; /* of its first device */
    int64_t segment_count;
    struct segment segments[MAX_SEGMENTS];
    int64_t counter_zero_ns;
    uint64_t counter_base;
    double counter_step_uj;      /* 0: the board has no counter */
    int64_t averages_power;      /* as boards before MI300 */
    int64_t is_second_die;
    uint64_t util_pct;
    uint64_t mem_util_pct;
    int64_t edge_c;              /* 65535 and 4294967295: not there */
    int64_t hotspot_c;
    uint64_t sm_clock_mhz;
    uint64_t mem_clock_mhz;
    uint64_t power_limit;        /* as the library has it, in uW or W */
    uint64_t power_limit_max;
    int64_t counts_violations;
    int64_t throttle_since_ns;
    uint64_t throttle_base_ns[2]; /* by power, and by the memory's temperature; a step of the firmware is 1 ms */
    double throttle_share[2];
    uint64_t throttlers;         /* indep_throttle_status */
    uint64_t ecc_uncorrected;
    char compute_mode[NAME_LENGTH];
    char memory_mode[NAME_LENGTH];
    int64_t partition_count;     /* as the library has listed them */
    struct partition partitions[MAX_PARTITIONS];
};

struct control {
    uint64_t size;
    int64_t simulated_ns;
    int64_t utc_offset_ns;
    int64_t gpu_count;
    uint32_t version[4];
    char build[NAME_LENGTH];
    int64_t rule_count;
    struct rule rules[MAX_RULES];
    struct gpu gpus[MAX_GPUS];
};

#include "../script.h"

static int is_initialized;

void fake_amdsmi_use(const char *control_path, const char *counts_path) {
    is_initialized = 0;
    use_files(control_path, counts_path);
}

__attribute__((constructor)) static void load(void) {
    fake_amdsmi_use(getenv("FAKE_AMDSMI_CONTROL"), getenv("FAKE_AMDSMI_CALLS"));
}

/* A handle is a number of the board from 1, and above it that of the partition. */
static int64_t index_of(void *handle) { return ((int64_t)(intptr_t)handle & 0xff) - 1; }

#define ENTER(handle)                                                                      \
    int64_t index = index_of(handle);                                                      \
    int64_t number = (int64_t)(intptr_t)handle >> 8;                                       \
    count_call(__func__, index);                                                           \
    if (control == NULL || !is_initialized) return NOT_INIT;                               \
    if (index < 0 || index >= control->gpu_count) return INVAL;                            \
    const volatile struct gpu *gpu = &control->gpus[index];                                \
    if (number >= gpu->partition_count) return NOT_FOUND;                                  \
    amdsmi_status_t status = (amdsmi_status_t)scripted(__func__, index);                   \
    if (status != SUCCESS) return status;

/* Metrics that the partitions after the first one do not have. */
#define ENTER_BOARD(handle) \
    ENTER(handle)           \
    if (number > 0) return NOT_SUPPORTED;

amdsmi_status_t amdsmi_init(uint64_t init_flags) {
    count_call(__func__, -1);
    if (init_flags != 2) return INVAL;
    if (control == NULL) return DRIVER_NOT_LOADED;
    amdsmi_status_t status = (amdsmi_status_t)scripted(__func__, -1);
    is_initialized = status == SUCCESS;
    return status;
}

amdsmi_status_t amdsmi_shut_down(void) {
    is_initialized = 0;
    return SUCCESS;
}

amdsmi_status_t amdsmi_get_lib_version(amdsmi_version_t *version) {
    if (control == NULL || !is_initialized) return NOT_INIT;
    memset(version, 0, sizeof *version);
    memcpy(version, (const void *)control->version, sizeof control->version);
    ((amdsmi_version_with_year_t *)version)->build = (const char *)control->build;
    if (control->version[0] > 25) version->build = (const char *)control->build;
    return SUCCESS;
}

amdsmi_status_t amdsmi_get_socket_handles(uint32_t *socket_count, amdsmi_socket_handle *socket_handles) {
    if (control == NULL || !is_initialized) return NOT_INIT;
    amdsmi_status_t status = (amdsmi_status_t)scripted(__func__, -1);
    if (status != SUCCESS) return status;
    for (int64_t i = 0; socket_handles != NULL && i < *socket_count && i < control->gpu_count; i++)
        socket_handles[i] = (void *)(intptr_t)(i + 1);
    *socket_count = (uint32_t)control->gpu_count;
    return SUCCESS;
}

amdsmi_status_t amdsmi_get_processor_handles(amdsmi_socket_handle socket_handle, uint32_t *processor_count,
                                             amdsmi_processor_handle *processor_handles) {
    ENTER(socket_handle)
    for (int64_t i = 0; processor_handles != NULL && i < *processor_count && i < gpu->partition_count; i++)
        processor_handles[i] = (void *)(intptr_t)((index + 1) | (i << 8));
    *processor_count = (uint32_t)gpu->partition_count;
    return SUCCESS;
}

amdsmi_status_t amdsmi_get_gpu_device_bdf(amdsmi_processor_handle processor_handle, uint64_t *bdf) {
    ENTER(processor_handle)
    *bdf = gpu->bdf | (uint64_t)number;
    return SUCCESS;
}

#define COPY(to, from) snprintf(to, sizeof(to), "%s", (const char *)(from))

amdsmi_status_t amdsmi_get_gpu_asic_info(amdsmi_processor_handle processor_handle, amdsmi_asic_info_t *info) {
    ENTER(processor_handle)
    memset(info, 0xff, sizeof *info);
    COPY(info->market_name, gpu->name);
    COPY(info->vendor_name, "Advanced Micro Devices Inc. [AMD/ATI]");
    COPY(info->asic_serial, gpu->serial);
    info->vendor_id = 0x1002;
    info->device_id = gpu->device_id;
    return SUCCESS;
}

amdsmi_status_t amdsmi_get_gpu_board_info(amdsmi_processor_handle processor_handle, amdsmi_board_info_t *info) {
    ENTER(processor_handle)
    memset(info, 0, sizeof *info);
    COPY(info->product_name, gpu->product_name);
    return SUCCESS;
}

amdsmi_status_t amdsmi_get_gpu_enumeration_info(amdsmi_processor_handle processor_handle,
                                                amdsmi_enumeration_info_t *info) {
    ENTER(processor_handle)
    memset(info, 0xff, sizeof *info);
    info->hip_id = (uint32_t)gpu->hip_id + (uint32_t)number;
    return SUCCESS;
}

amdsmi_status_t amdsmi_get_gpu_compute_partition(amdsmi_processor_handle processor_handle,
                                                 char *compute_partition, uint32_t len) {
    ENTER(processor_handle)
    if (gpu->compute_mode[0] == 0) return NOT_SUPPORTED;
    snprintf(compute_partition, len, "%s", (const char *)gpu->compute_mode);
    return SUCCESS;
}

amdsmi_status_t amdsmi_get_gpu_memory_partition(amdsmi_processor_handle processor_handle,
                                                char *memory_partition, uint32_t len) {
    ENTER(processor_handle)
    if (gpu->memory_mode[0] == 0) return NOT_SUPPORTED;
    snprintf(memory_partition, len, "%s", (const char *)gpu->memory_mode);
    return SUCCESS;
}

amdsmi_status_t amdsmi_get_power_info(amdsmi_processor_handle processor_handle, amdsmi_power_info_t *info) {
    ENTER_BOARD(processor_handle)
    uint32_t watts = gpu->is_second_die ? 0 : (uint32_t)power_w(gpu, now_ns());
    memset(info, 0, sizeof *info);
    info->socket_power = watts;
    info->current_socket_power = gpu->averages_power ? 0xFFFF : watts;
    info->average_socket_power = gpu->averages_power ? watts : 0xFFFF;
    info->gfx_voltage = info->soc_voltage = info->mem_voltage = 0xFFFF;
    info->power_limit = 0xFFFFFFFF;
    return SUCCESS;
}

amdsmi_status_t amdsmi_get_power_cap_info(amdsmi_processor_handle processor_handle, uint32_t sensor_ind,
                                          amdsmi_power_cap_info_t *info) {
    ENTER_BOARD(processor_handle)
    if (sensor_ind != 0) return INVAL;
    memset(info, 0, sizeof *info);
    info->power_cap = info->default_power_cap = gpu->power_limit;
    info->max_power_cap = gpu->power_limit_max;
    return SUCCESS;
}

amdsmi_status_t amdsmi_get_energy_count(amdsmi_processor_handle processor_handle, uint64_t *energy_accumulator,
                                        float *counter_resolution, uint64_t *timestamp) {
    ENTER_BOARD(processor_handle)
    if (gpu->counter_step_uj == 0) return NOT_SUPPORTED;
    double joules = integral_j(gpu, gpu->counter_zero_ns, now_ns());
    *counter_resolution = (float)gpu->counter_step_uj;
    *energy_accumulator = gpu->is_second_die
        ? 0 : gpu->counter_base + (uint64_t)(joules * 1e6 / gpu->counter_step_uj);
    *timestamp = (uint64_t)now_ns();
    return SUCCESS;
}

amdsmi_status_t amdsmi_get_gpu_activity(amdsmi_processor_handle processor_handle, amdsmi_engine_usage_t *info) {
    ENTER_BOARD(processor_handle)
    memset(info, 0, sizeof *info);
    info->gfx_activity = (uint32_t)gpu->util_pct;
    info->umc_activity = (uint32_t)gpu->mem_util_pct;
    info->mm_activity = 0xFFFF;
    return SUCCESS;
}

amdsmi_status_t amdsmi_get_gpu_memory_total(amdsmi_processor_handle processor_handle, uint32_t mem_type,
                                            uint64_t *total) {
    ENTER(processor_handle)
    if (mem_type != 0) return INVAL;
    *total = gpu->partitions[number].mem_total_bytes;
    return SUCCESS;
}

amdsmi_status_t amdsmi_get_gpu_memory_usage(amdsmi_processor_handle processor_handle, uint32_t mem_type,
                                            uint64_t *used) {
    ENTER(processor_handle)
    if (mem_type != 0) return INVAL;
    *used = gpu->partitions[number].mem_used_bytes;
    return SUCCESS;
}

amdsmi_status_t amdsmi_get_temp_metric(amdsmi_processor_handle processor_handle, uint32_t sensor_type,
                                       uint32_t metric, int64_t *temperature) {
    ENTER_BOARD(processor_handle)
    if (metric != 0 || sensor_type > 1) return INVAL;
    *temperature = sensor_type == 0 ? gpu->edge_c : gpu->hotspot_c;
    return *temperature == 0 ? NOT_SUPPORTED : SUCCESS;
}

amdsmi_status_t amdsmi_get_clock_info(amdsmi_processor_handle processor_handle, uint32_t clk_type,
                                      amdsmi_clk_info_t *info) {
    ENTER_BOARD(processor_handle)
    if (clk_type != 0 && clk_type != 4) return INVAL;
    memset(info, 0xff, sizeof *info);
    info->clk = (uint32_t)(clk_type == 0 ? gpu->sm_clock_mhz : gpu->mem_clock_mhz);
    return SUCCESS;
}

amdsmi_status_t amdsmi_get_gpu_total_ecc_count(amdsmi_processor_handle processor_handle,
                                               amdsmi_error_count_t *ec) {
    ENTER_BOARD(processor_handle)
    memset(ec, 0, sizeof *ec);
    ec->uncorrectable_count = gpu->ecc_uncorrected;
    return SUCCESS;
}

amdsmi_status_t amdsmi_get_violation_status(amdsmi_processor_handle processor_handle,
                                            amdsmi_violation_status_t *info) {
    ENTER_BOARD(processor_handle)
    memset(info, 0xff, sizeof *info);
    if (!gpu->counts_violations) return SUCCESS;
    uint64_t throttled_ms[2];
    for (int i = 0; i < 2; i++) {
        double since_ns = gpu->throttle_share[i] * (double)(now_ns() - gpu->throttle_since_ns);
        throttled_ms[i] = (gpu->throttle_base_ns[i] + (uint64_t)since_ns) / 1000000;
    }
    info->acc_counter = (uint64_t)now_ns() / 1000000;
    info->acc_ppt_pwr = throttled_ms[0];
    info->acc_prochot_thrm = 0;
    info->acc_socket_thrm = throttled_ms[1] / 2;
    info->acc_hbm_thrm = throttled_ms[1];
    return SUCCESS;
}

/* Of amdsmi_gpu_metrics_t the offset of one field, which differs between versions. */
amdsmi_status_t amdsmi_get_gpu_metrics_info(amdsmi_processor_handle processor_handle, uint8_t *pgpu_metrics) {
    ENTER_BOARD(processor_handle)
    uint64_t throttlers = gpu->throttlers;
    memset(pgpu_metrics, 0xff, 4544);
    memcpy(pgpu_metrics + (control->version[0] < 27 ? 112 : 120), &throttlers, sizeof throttlers);
    return SUCCESS;
}

amdsmi_status_t amdsmi_get_gpu_process_list(amdsmi_processor_handle processor_handle, uint32_t *max_processes,
                                            amdsmi_proc_info_t *list) {
    ENTER(processor_handle)
    const volatile struct partition *own = &gpu->partitions[number];
    uint32_t room = *max_processes;
    *max_processes = (uint32_t)own->pid_count;
    for (uint32_t i = 0; i < room && i < own->pid_count; i++) {
        memset(&list[i], 0, sizeof list[i]);
        list[i].pid = (uint32_t)own->pids[i];
        list[i].mem = i < own->user_count ? 1 << 30 : 0;
    }
    return room < own->pid_count ? OUT_OF_RESOURCES : SUCCESS;
}
