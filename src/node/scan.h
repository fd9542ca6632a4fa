/* SPDX-License-Identifier: Apache-2.0 */
/* One look at all cards through NVML: facts only, nothing is decided. NVML may block as long as the
 * driver does, so this is called from a thread of its own (probe.h). */
#ifndef VGPU_NODE_SCAN_H
#define VGPU_NODE_SCAN_H

#include "cluster/device_id.h"
#include "cluster/node_devices.h"
#include "node/nvml.h"

#include <stdbool.h>
#include <stdint.h>

#define SCAN_CARDS_MAX 128
#define SCAN_NAME_BYTES NVML_DEVICE_NAME_V2_BUFFER_SIZE

/* A card, or a MIG device: `parent` is then its card's UUID. */
struct scan_card {
    char uuid[DEVICE_UUID_BYTES]; /* "": NVML did not tell it */
    char parent[DEVICE_UUID_BYTES];
    char name[SCAN_NAME_BYTES];
    char profile[NODE_DEVICES_PROFILE_BYTES];
    char bus_id[NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE];
    uint32_t index, mig_index, gpu_instance, compute_instance;
    bool mig_mode; /* of a card */
    bool has_minor, has_memory, has_energy;
    uint32_t minor;
    uint64_t memory_bytes;
    uint64_t
        energy_mj; /* since the driver was loaded or the card reset; a MIG device: its card's */
    int numa;      /* below 0: not known */
    uint32_t capabilities[2]; /* of a MIG device: /dev/nvidia-caps/nvidia-cap<N> */
    unsigned capability_count;
    char problem[128]; /* "": it answers all that a card answers */
};

/* Row: from, column: to; in the order of the cards without a parent. */
struct scan_link {
    bool known;
    nvmlGpuTopologyLevel_t level;
    unsigned nvlinks;
};

struct scan {
    unsigned generation; /* how often NVML has been opened */
    char problem[128];   /* "": NVML as a whole answers */
    char driver_version[NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE];
    char boot[96]; /* differs after a reboot and after the driver's module was loaded anew */
    struct scan_card *cards;
    size_t count;
    struct scan_link *links; /* cards x cards; NULL where it was not asked for */
    size_t link_cards;
};

struct scan_places {
    const char *sysfs, *proc; /* "/sys", "/proc" */
};

/* NULL without memory. Errors of NVML are in it. */
struct scan *scan_make(const struct nvml *nvml, unsigned generation, bool with_links,
    const struct scan_places *places);
void scan_destroy(struct scan *scan);

/* Pure: "1g.5gb", "1c.2g.10gb", from slices and memory, as nvidia-smi names it. */
void scan_format_profile(unsigned compute_slices, unsigned gpu_slices, uint64_t memory_mib,
    uint64_t card_bytes, char profile[NODE_DEVICES_PROFILE_BYTES]);

#endif
