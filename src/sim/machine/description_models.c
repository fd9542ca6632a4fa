/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/machine/description_models.h"

#include <string.h>

#define MIB (1024ull * 1024)

/*
 * h200: name, memory, SMs, driver, CUDA version as seen (H200, driver 580.159.04); the reserved
 * share is assumed so that CUDA's total comes to about 139.8 GiB. a100: from the vendor's data
 * sheet, nothing measured.
 */
static const struct {
    const char *word;
    struct sim_model model;
} models[] = {
    {"h200", {.name = "NVIDIA H200",
                 .memory_bytes = 143771 * MIB,
                 .reserved_bytes = 606 * MIB,
                 .multiprocessors = 132,
                 .compute_major = 9,
                 .compute_minor = 0,
                 .threads_per_multiprocessor = 2048,
                 .clock_khz = 1980000,
                 .memory_clock_khz = 3201000,
                 .memory_bus_bits = 6144,
                 .power_limit_mw = 700000,
                 .pci_device_id = 0x233510DEu,
                 .architecture = 9,
                 .l2_cache_bytes = 60 * MIB}},
    {"a100", {.name = "NVIDIA A100-SXM4-40GB",
                 .memory_bytes = 40960 * MIB,
                 .reserved_bytes = 424 * MIB,
                 .multiprocessors = 108,
                 .compute_major = 8,
                 .compute_minor = 0,
                 .threads_per_multiprocessor = 2048,
                 .clock_khz = 1410000,
                 .memory_clock_khz = 1215000,
                 .memory_bus_bits = 5120,
                 .power_limit_mw = 400000,
                 .pci_device_id = 0x20B010DEu,
                 .architecture = 7,
                 .l2_cache_bytes = 40 * MIB}},
};

/*
 * Drivers by their short names. Versions and what they brought are NVIDIA's published release notes
 * and cuda.h; the forms of RM calls before 580 are assumed (docs/simulator.md). "future" is made
 * up.
 */
static const struct sim_profile profiles[] = {
    {"440", "440.118.02", 10020, true, SIM_RM_FORM_VID_HEAP, true, false},
    {"470", "470.82.01", 11040, true, SIM_RM_FORM_VID_HEAP, true, false},
    {"535", "535.183.01", 12020, false, SIM_RM_FORM_VID_HEAP, false, false},
    {"580", "580.159.04", 13000, false, SIM_RM_FORM_ALLOC, false, false},
    {"future", "640.12.01", 14000, false, SIM_RM_FORM_ALLOC, false, true},
};

const struct sim_model *sim_model_find(const char *word)
{
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        if (strcmp(word, models[i].word) == 0)
            return &models[i].model;
    }
    return NULL;
}

const struct sim_profile *sim_profile_find(const char *word)
{
    for (size_t i = 0; i < sizeof profiles / sizeof profiles[0]; i++) {
        if (strcmp(word, profiles[i].word) == 0)
            return &profiles[i];
    }
    return NULL;
}
