/* SPDX-License-Identifier: Apache-2.0 */
#include "node/scan.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CARDS_MAX 64 /* of one machine */
#define FILE_BYTES 4096

struct scanning {
    const struct nvml *nvml;
    const struct scan_places *places;
    struct scan *scan;
    nvmlDevice_t handles[CARDS_MAX]; /* of the cards that could be identified */
    size_t handle_count;
};

/* Only the first problem is kept: what follows is mostly its consequence. */
static bool answers(
    const struct scanning *scanning, struct scan_card *card, const char *what, nvmlReturn_t result)
{
    if (result == NVML_SUCCESS)
        return true;
    if (!*card->problem)
        snprintf(card->problem, sizeof(card->problem), "%s: %s", what,
            nvml_text(scanning->nvml, result));
    return false;
}

/* Where a function that older drivers or some cards lack is no fault of the card. */
static bool is_lacking(nvmlReturn_t result)
{
    return result == NVML_ERROR_NOT_SUPPORTED || result == NVML_ERROR_FUNCTION_NOT_FOUND ||
           result == NVML_ERROR_NO_PERMISSION;
}

/* Files of the kernel tell no size. */
static bool read_kernel_file(const char *path, char text[FILE_BYTES])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t bytes = fd < 0 ? -1 : read(fd, text, FILE_BYTES - 1);
    if (fd >= 0)
        close(fd);
    text[bytes > 0 ? bytes : 0] = '\0';
    return bytes > 0;
}

static bool read_number(const char *path, const char *name, long *ret_number)
{
    char text[FILE_BYTES], *end;
    if (!read_kernel_file(path, text))
        return false;
    const char *at = *name ? strstr(text, name) : text;
    if (!at)
        return false;
    at += strlen(name);
    long number = strtol(at, &end, 10);
    if (end == at)
        return false;
    *ret_number = number;
    return true;
}

/* NVML writes the domain with eight digits and capitals, sysfs with four and small letters. */
static int find_numa(const struct scanning *scanning, const struct scan_card *card)
{
    char path[512], bus[NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE];
    long node;
    const char *from = card->bus_id;
    if (strlen(from) == 16 && !strncmp(from, "0000", 4))
        from += 4;
    size_t length = 0;
    for (; from[length] && length + 1 < sizeof(bus); length++) {
        if (!isxdigit((unsigned char)from[length]) && !strchr(":.", from[length]))
            return -1;
        bus[length] = (char)tolower((unsigned char)from[length]);
    }
    bus[length] = '\0';
    snprintf(path, sizeof(path), "%s/bus/pci/devices/%s/numa_node", scanning->places->sysfs, bus);
    return length && read_number(path, "", &node) && node >= 0 && node < 1024 ? (int)node : -1;
}

static void find_memory(
    const struct scanning *scanning, nvmlDevice_t handle, struct scan_card *card)
{
    nvmlMemory_t memory = {0};
    nvmlReturn_t result = nvml_call(scanning->nvml, nvmlDeviceGetMemoryInfo, handle, &memory);
    /* Cards with unified memory have none to tell: preConfiguredDeviceMemory is for them. */
    if (is_lacking(result) || !answers(scanning, card, "memory", result))
        return;
    card->has_memory = true;
    card->memory_bytes = memory.total;
}

static bool find_uuid(const struct scanning *scanning, nvmlDevice_t handle, struct scan_card *card)
{
    char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE] = "";
    if (!answers(scanning, card, "UUID",
            nvml_call(scanning->nvml, nvmlDeviceGetUUID, handle, uuid, sizeof(uuid))))
        return false;
    if (memchr(uuid, '\0', sizeof(uuid)) && *uuid && strlen(uuid) < sizeof(card->uuid)) {
        memcpy(card->uuid, uuid, strlen(uuid) + 1);
        return true;
    }
    snprintf(card->problem, sizeof(card->problem), "UUID: it is empty or too long");
    return false;
}

static struct scan_card *add_card(struct scanning *scanning)
{
    struct scan *scan = scanning->scan;
    if (scan->count >= SCAN_CARDS_MAX)
        return NULL;
    struct scan_card *card = &scan->cards[scan->count++];
    *card = (struct scan_card){.numa = -1};
    return card;
}

void scan_format_profile(unsigned compute_slices, unsigned gpu_slices, uint64_t memory_mib,
    uint64_t card_bytes, char profile[NODE_DEVICES_PROFILE_BYTES])
{
    /* The share of the card's memory, rounded up to eighths, of its size in whole GiB. */
    const uint64_t gib = 1ull << 30;
    uint64_t card_gib = (card_bytes + gib - 1) / gib, card_mib = card_bytes >> 20;
    uint64_t eighths = card_mib ? (memory_mib * 8 + card_mib - 1) / card_mib : 0;
    uint64_t size_gb = (eighths * card_gib + 4) / 8;
    if (compute_slices == gpu_slices || !compute_slices)
        snprintf(profile, NODE_DEVICES_PROFILE_BYTES, "%ug.%llugb", gpu_slices,
            (unsigned long long)size_gb);
    else
        snprintf(profile, NODE_DEVICES_PROFILE_BYTES, "%uc.%ug.%llugb", compute_slices, gpu_slices,
            (unsigned long long)size_gb);
}

/* Behind " MIG " in the name; older drivers give the card's name there, but have attributes. */
static void find_profile(const struct scanning *scanning, nvmlDevice_t handle,
    const struct scan_card *parent, struct scan_card *card)
{
    nvmlDeviceAttributes_t attributes = {0};
    const char *behind = strstr(card->name, " MIG ");
    if (behind && strlen(behind + 5) < sizeof(card->profile)) {
        snprintf(card->profile, sizeof(card->profile), "%s", behind + 5);
    } else if (answers(scanning, card, "attributes",
                   nvml_call(scanning->nvml, nvmlDeviceGetAttributes_v2, handle, &attributes))) {
        scan_format_profile(attributes.computeInstanceSliceCount, attributes.gpuInstanceSliceCount,
            attributes.memorySizeMB, parent->memory_bytes, card->profile);
    }
    for (char *at = card->profile; *at; at++)
        if (!isalnum((unsigned char)*at) && !strchr(".-_+", *at))
            *at = '-';
}

/* /proc/driver/nvidia/capabilities names the device file of each instance. */
static void find_capabilities(const struct scanning *scanning, struct scan_card *card)
{
    char path[512];
    long number;
    int length = snprintf(path, sizeof(path), "%s/driver/nvidia/capabilities/gpu%u/mig/gi%u",
        scanning->places->proc, card->minor, card->gpu_instance);
    snprintf(path + length, sizeof(path) - (size_t)length, "/access");
    if (read_number(path, "DeviceFileMinor:", &number) && number >= 0)
        card->capabilities[card->capability_count++] = (uint32_t)number;
    snprintf(path + length, sizeof(path) - (size_t)length, "/ci%u/access", card->compute_instance);
    if (read_number(path, "DeviceFileMinor:", &number) && number >= 0)
        card->capabilities[card->capability_count++] = (uint32_t)number;
}

static void look_at_mig(
    struct scanning *scanning, nvmlDevice_t parent_handle, size_t parent_at, unsigned mig_index)
{
    const struct nvml *nvml = scanning->nvml;
    nvmlDevice_t handle;
    if (nvml_call(nvml, nvmlDeviceGetMigDeviceHandleByIndex, parent_handle, mig_index, &handle) !=
        NVML_SUCCESS)
        return; /* not every index has one */
    struct scan_card *card = add_card(scanning);
    if (!card)
        return;
    const struct scan_card *parent = &scanning->scan->cards[parent_at];
    memcpy(card->parent, parent->uuid, sizeof(card->parent));
    memcpy(card->bus_id, parent->bus_id, sizeof(card->bus_id));
    memcpy(card->problem, parent->problem, sizeof(card->problem));
    card->index = parent->index;
    card->mig_index = mig_index;
    card->has_minor = parent->has_minor;
    card->minor = parent->minor;
    card->numa = parent->numa;
    card->has_energy = parent->has_energy;
    card->energy_mj = parent->energy_mj;
    unsigned gpu_instance = 0, compute_instance = 0;
    if (!find_uuid(scanning, handle, card) ||
        !answers(scanning, card, "name",
            nvml_call(nvml, nvmlDeviceGetName, handle, card->name, sizeof(card->name))) ||
        !answers(scanning, card, "GPU instance",
            nvml_call(nvml, nvmlDeviceGetGpuInstanceId, handle, &gpu_instance)) ||
        !answers(scanning, card, "compute instance",
            nvml_call(nvml, nvmlDeviceGetComputeInstanceId, handle, &compute_instance)))
        return;
    card->gpu_instance = gpu_instance;
    card->compute_instance = compute_instance;
    find_memory(scanning, handle, card);
    find_profile(scanning, handle, parent, card);
    find_capabilities(scanning, card);
}

static void look_at_instances(struct scanning *scanning, nvmlDevice_t handle, size_t at)
{
    const struct nvml *nvml = scanning->nvml;
    unsigned current = 0, pending = 0, count = 0;
    if (nvml_call(nvml, nvmlDeviceGetMigMode, handle, &current, &pending) != NVML_SUCCESS ||
        current != NVML_DEVICE_MIG_ENABLE)
        return;
    scanning->scan->cards[at].mig_mode = true;
    if (!answers(scanning, &scanning->scan->cards[at], "MIG devices",
            nvml_call(nvml, nvmlDeviceGetMaxMigDeviceCount, handle, &count)))
        return;
    for (unsigned i = 0; i < count && i < SCAN_CARDS_MAX; i++)
        look_at_mig(scanning, handle, at, i);
}

static void look_at_card(struct scanning *scanning, unsigned index)
{
    const struct nvml *nvml = scanning->nvml;
    nvmlDevice_t handle;
    nvmlPciInfo_t pci = {0};
    size_t at = scanning->scan->count;
    struct scan_card *card = add_card(scanning);
    if (!card)
        return;
    card->index = index;
    if (!answers(scanning, card, "handle",
            nvml_call(nvml, nvmlDeviceGetHandleByIndex_v2, index, &handle)) ||
        !find_uuid(scanning, handle, card))
        return;
    answers(scanning, card, "name",
        nvml_call(nvml, nvmlDeviceGetName, handle, card->name, sizeof(card->name)));
    if (answers(
            scanning, card, "PCI address", nvml_call(nvml, nvmlDeviceGetPciInfo_v3, handle, &pci)))
        snprintf(card->bus_id, sizeof(card->bus_id), "%.*s", (int)sizeof(pci.busId) - 1, pci.busId);
    card->has_minor = answers(scanning, card, "minor number",
        nvml_call(nvml, nvmlDeviceGetMinorNumber, handle, &card->minor));
    find_memory(scanning, handle, card);
    unsigned long long energy;
    card->has_energy =
        nvml_call(nvml, nvmlDeviceGetTotalEnergyConsumption, handle, &energy) == NVML_SUCCESS;
    if (card->has_energy)
        card->energy_mj = energy;
    card->numa = find_numa(scanning, card);
    if (scanning->handle_count < CARDS_MAX)
        scanning->handles[scanning->handle_count++] = handle;
    look_at_instances(scanning, handle, at);
}

/* Active NVLinks that lead straight from one to the other. */
static unsigned count_nvlinks(const struct scanning *scanning, nvmlDevice_t from, nvmlDevice_t to)
{
    const struct nvml *nvml = scanning->nvml;
    nvmlPciInfo_t there = {0};
    unsigned count = 0;
    if (nvml_call(nvml, nvmlDeviceGetPciInfo_v3, to, &there) != NVML_SUCCESS)
        return 0;
    for (unsigned link = 0; link < NVML_NVLINK_MAX_LINKS; link++) {
        nvmlEnableState_t active = NVML_FEATURE_DISABLED;
        nvmlPciInfo_t remote = {0};
        if (nvml_call(nvml, nvmlDeviceGetNvLinkState, from, link, &active) != NVML_SUCCESS)
            break;
        if (active == NVML_FEATURE_ENABLED &&
            nvml_call(nvml, nvmlDeviceGetNvLinkRemotePciInfo_v2, from, link, &remote) ==
                NVML_SUCCESS &&
            !strncmp(remote.busId, there.busId, sizeof(there.busId)))
            count++;
    }
    return count;
}

static void look_at_links(struct scanning *scanning)
{
    struct scan *scan = scanning->scan;
    size_t count = scanning->handle_count;
    scan->links = calloc(count * count + 1, sizeof(*scan->links));
    if (!scan->links)
        return;
    scan->link_cards = count;
    for (size_t from = 0; from < count; from++) {
        for (size_t to = 0; to < count; to++) {
            struct scan_link *link = &scan->links[from * count + to];
            if (from == to)
                continue;
            link->known =
                nvml_call(scanning->nvml, nvmlDeviceGetTopologyCommonAncestor,
                    scanning->handles[from], scanning->handles[to], &link->level) == NVML_SUCCESS;
            link->nvlinks = count_nvlinks(scanning, scanning->handles[from], scanning->handles[to]);
        }
    }
}

/* The module's directory in sysfs is made when it is loaded: its inode's number is a new one then.
 */
static void find_boot(const struct scan_places *places, char *boot, size_t size)
{
    char path[512], text[FILE_BYTES];
    struct stat module = {0};
    snprintf(path, sizeof(path), "%s/sys/kernel/random/boot_id", places->proc);
    (void)read_kernel_file(path, text);
    snprintf(path, sizeof(path), "%s/module/nvidia", places->sysfs);
    if (stat(path, &module) != 0)
        module.st_ino = 0;
    snprintf(boot, size, "%.36s/%llu", text, (unsigned long long)module.st_ino);
}

struct scan *scan_make(
    const struct nvml *nvml, unsigned generation, bool with_links, const struct scan_places *places)
{
    struct scan *scan = calloc(1, sizeof(*scan));
    struct scanning scanning = {.nvml = nvml, .places = places, .scan = scan};
    unsigned count = 0;
    if (!scan)
        return NULL;
    scan->cards = calloc(SCAN_CARDS_MAX, sizeof(*scan->cards));
    if (!scan->cards) {
        free(scan);
        return NULL;
    }
    scan->generation = generation;
    find_boot(places, scan->boot, sizeof(scan->boot));
    nvmlReturn_t result = nvml_call(nvml, nvmlDeviceGetCount_v2, &count);
    if (result != NVML_SUCCESS) {
        snprintf(scan->problem, sizeof(scan->problem), "NVML does not count the cards: %s",
            nvml_text(nvml, result));
        return scan;
    }
    (void)nvml_call(
        nvml, nvmlSystemGetDriverVersion, scan->driver_version, sizeof(scan->driver_version));
    for (unsigned i = 0; i < count && i < CARDS_MAX; i++)
        look_at_card(&scanning, i);
    if (with_links)
        look_at_links(&scanning);
    return scan;
}

void scan_destroy(struct scan *scan)
{
    if (!scan)
        return;
    free(scan->links);
    free(scan->cards);
    free(scan);
}
