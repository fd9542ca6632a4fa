/* SPDX-License-Identifier: Apache-2.0 */
/* The order of the container's devices. */
#include "driver/device_list.h"

#include "base/atomic.h"
#include "base/lock.h"
#include "base/parse.h"
#include "driver/nvml.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define DEVICES_MAX 64 /* cards and instances; the region has room for 64 */
#ifndef DEVICE_ROOT
#define DEVICE_ROOT "" /* a test has one of its own */
#endif
#define PROC_DIRECTORY DEVICE_ROOT "/proc/driver/nvidia/gpus"
#define PROC_CAPABILITIES DEVICE_ROOT "/proc/driver/nvidia/capabilities"

struct known_device {
    char pci[24]; /* sorts as PCI addresses do */
    char uuid[48];
    char card[48]; /* of a MIG compute instance: its card's UUID; else as uuid */
    int minor;     /* the card's; its index where NVML tells none */
};

struct list {
    unsigned count;
    struct known_device devices[DEVICES_MAX];
};

/* learn_lock: one thread learns, and the others wait for it. Held over calls of NVML, so it is not
 * taken from within the driver; what was learnt is looked up under list_lock alone. */
static struct lock learn_lock;
static struct lock list_lock;
static bool prepared, asked_nvml;
static struct list known GUARDED_BY(list_lock);
static _Thread_local bool learning __attribute__((tls_model("initial-exec")));

bool device_list_is_learning(void)
{
    return learning;
}

static void copy_field(char *target, size_t size, const char *text, const char *label)
{
    const char *at = strstr(text, label);
    if (!at)
        return;
    at += strlen(label);
    at += strspn(at, " \t");
    size_t length = strcspn(at, " \t\n");
    if (length < size) {
        memcpy(target, at, length);
        target[length] = '\0';
    }
}

/* NVML tells the compute instances of a card in MIG mode: /proc has the ones that there are in
 * directories gi<N> (MIG user guide, "Device Nodes and Capabilities"), and no UUIDs of theirs. */
static bool has_instances(int minor)
{
    char path[96];
    bool has = false;
    snprintf(path, sizeof(path), PROC_CAPABILITIES "/gpu%d/mig", minor);
    DIR *directory = opendir(path);
    if (!directory)
        return false;
    for (struct dirent *entry; !has && (entry = readdir(directory));)
        has = !strncmp(entry->d_name, "gi", 2);
    closedir(directory);
    return has;
}

/* False where the file names a device that it does not identify. */
static bool read_information(const char *pci, struct list *list)
{
    char path[300], text[2048], minor[16] = "";
    struct known_device device = {.minor = -1};
    snprintf(path, sizeof(path), PROC_DIRECTORY "/%s/information", pci);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return true;
    ssize_t got = read(fd, text, sizeof(text) - 1);
    close(fd);
    text[got > 0 ? got : 0] = '\0';
    copy_field(device.uuid, sizeof(device.uuid), text, "GPU UUID:");
    copy_field(minor, sizeof(minor), text, "Device Minor:");
    /* A card that no process has opened yet shows question marks. */
    if (!device.uuid[0] || strchr(device.uuid, '?') || !minor[0] || list->count >= DEVICES_MAX)
        return false;
    device.minor = (int)parse_digits(minor);
    snprintf(path, sizeof(path), DEVICE_ROOT "/dev/nvidia%d", device.minor);
    if (access(path, F_OK) != 0)
        return true; /* the host's, not the container's */
    if (has_instances(device.minor))
        return false;
    memcpy(device.card, device.uuid, sizeof(device.card));
    snprintf(device.pci, sizeof(device.pci), "%.*s", (int)sizeof(device.pci) - 1, pci);
    list->devices[list->count++] = device;
    return true;
}

static int compare_pci(const void *a, const void *b)
{
    return strcasecmp(((const struct known_device *)a)->pci, ((const struct known_device *)b)->pci);
}

static void learn_from_proc(struct list *list)
{
    DIR *directory = opendir(PROC_DIRECTORY);
    if (!directory)
        return;
    bool all = true;
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (entry->d_name[0] != '.')
            all &= read_information(entry->d_name, list);
    }
    closedir(directory);
    list->count = all ? list->count : 0;
    qsort(list->devices, list->count, sizeof(list->devices[0]), compare_pci);
}

/* A card, or the instances that it has in its place. */
static void add_card(struct list *list, nvmlDevice_t handle, unsigned index)
{
    struct known_device device = {.minor = (int)index};
    nvmlDevice_t instance;
    unsigned minor, place = 0, before = list->count;
    if (nvml_device_uuid(handle, device.card) != NVML_SUCCESS)
        return;
    if (nvml.nvmlDeviceGetMinorNumber(handle, &minor) == NVML_SUCCESS)
        device.minor = (int)minor;
    while (list->count < DEVICES_MAX && nvml_next_instance(handle, &place, &instance)) {
        if (nvml_device_uuid(instance, device.uuid) == NVML_SUCCESS &&
            strcmp(device.uuid, device.card) != 0)
            list->devices[list->count++] = device;
    }
    if (list->count > before || list->count >= DEVICES_MAX)
        return;
    memcpy(device.uuid, device.card, sizeof(device.uuid));
    list->devices[list->count++] = device;
}

/* NVML counts by PCI address. */
static void learn_from_nvml(struct list *list)
{
    unsigned count = 0;
    nvmlDevice_t handle;
    if (!nvml_load(true) || nvml.nvmlInit_v2() != NVML_SUCCESS)
        return;
    if (nvml.nvmlDeviceGetCount_v2(&count) != NVML_SUCCESS)
        count = 0;
    for (unsigned i = 0; i < count && list->count < DEVICES_MAX; i++) {
        if (nvml.nvmlDeviceGetHandleByIndex_v2(i, &handle) == NVML_SUCCESS)
            add_card(list, handle, i);
    }
    nvml.nvmlShutdown();
}

static void publish(const struct list *list)
{
    LOCKED(list_lock)
        known = *list;
    store_release(&prepared, true);
}

/* NVML's own calls to the resource manager may lead back here, in this thread or, with NVML's locks
 * held, in another. */
static void learn_locked(bool from_proc) REQUIRES(learn_lock)
{
    struct list list = {0};
    learning = true;
    if (from_proc)
        learn_from_proc(&list);
    if (!list.count)
        learn_from_nvml(&list);
    learning = false;
    if (list.count || from_proc)
        publish(&list);
}

void device_list_prepare(void)
{
    if (load_acquire(&prepared) || learning)
        return;
    LOCKED_TO_END(learn_lock);
    if (!load_relaxed(&prepared))
        learn_locked(true);
}

/* A card whose instances CUDA does not tell apart is where the first of them is. */
static int find_known(const char *uuid) REQUIRES(list_lock)
{
    for (unsigned i = 0; i < known.count; i++) {
        if (!strcasecmp(known.devices[i].uuid, uuid) || !strcasecmp(known.devices[i].card, uuid))
            return (int)i;
    }
    return -1;
}

static bool is_known(const char *uuid)
{
    LOCKED_TO_END(list_lock);
    return find_known(uuid) >= 0;
}

void device_list_confirm(const char *uuid)
{
    if (!load_acquire(&prepared) || load_acquire(&asked_nvml) || learning)
        return;
    LOCKED_TO_END(learn_lock);
    if (!load_relaxed(&asked_nvml) && !is_known(uuid)) {
        learn_locked(false);
        store_release(&asked_nvml, true);
    }
}

void device_list_reset(void) NO_THREAD_SAFETY_ANALYSIS
{
    lock_reset(&learn_lock);
    lock_reset(&list_lock);
    learning = false;
    if (!prepared)
        known.count = 0;
}

/* The next item that is not empty. */
static bool next_item(const char **names, char *item, size_t item_bytes)
{
    while (parse_list_next(names, item, item_bytes)) {
        if (*item)
            return true;
    }
    return false;
}

/* A UUID, which may be shortened as CUDA allows: some of it must be there behind its kind. */
static bool begins_uuid(const char *item, const char *uuid)
{
    bool is_uuid = !strncasecmp(item, "GPU-", 4) || !strncasecmp(item, "MIG-", 4);
    return is_uuid && item[4] && !strncasecmp(item, uuid, strlen(item));
}

/* What names a card names the first of its instances, as CUDA gives it. What is shortened too far
 * to mean one device, or one card, names none. */
static uint64_t only_device(uint64_t devices, bool of_card) REQUIRES(list_lock)
{
    unsigned first = 0;
    while (devices && !(devices >> first & 1))
        first++;
    for (unsigned i = first + 1; devices && i < known.count; i++) {
        bool same = of_card && !strcmp(known.devices[i].card, known.devices[first].card);
        if ((devices >> i & 1) && !same)
            return 0;
    }
    return devices & 1ull << first;
}

/* The known device that an item names, as a bit, or 0: by its UUID, by its card's, or by the card's
 * minor number. */
static uint64_t item_device(const char *item) REQUIRES(list_lock)
{
    uint64_t number, devices = 0;
    bool is_number = parse_number(item, 1u << 20, &number) == 0;
    for (unsigned i = 0; load_relaxed(&prepared) && i < known.count; i++) {
        const struct known_device *device = &known.devices[i];
        if (is_number ? (uint64_t)device->minor == number
                      : begins_uuid(item, device->uuid) || begins_uuid(item, device->card))
            devices |= 1ull << i;
    }
    return only_device(devices, is_number || strncasecmp(item, "MIG-", 4) != 0);
}

/* A device that the order does not know (position < 0) is found by its UUID alone. *ret_named: the
 * known devices that the list names. */
static int find_in_list(const char *names, const char *uuid, int position, uint64_t *ret_named)
    REQUIRES(list_lock)
{
    char item[64];
    int found = -1;
    *ret_named = 0;
    for (int i = 0; next_item(&names, item, sizeof(item)); i++) {
        uint64_t devices = item_device(item);
        *ret_named |= devices;
        bool is_it = position >= 0 ? devices >> position & 1 : !devices && begins_uuid(item, uuid);
        if (found < 0 && is_it)
            found = i;
    }
    return found;
}

/* The devices that a list does not name have the places left, in their order: those of items that
 * name no known device, then those behind the list. So no two devices have the same place. */
static int find_place_left(const char *names, int position, uint64_t named) REQUIRES(list_lock)
{
    char item[64];
    int place = 0, before = 0;
    for (int i = 0; i < position; i++)
        before += !(named >> i & 1);
    for (; next_item(&names, item, sizeof(item)); place++) {
        if (!item_device(item) && before-- == 0)
            return place;
    }
    return place + before;
}

static int position_locked(const char *const *lists, const char *uuid) REQUIRES(list_lock)
{
    int position = load_relaxed(&prepared) ? find_known(uuid) : -1;
    for (; lists && *lists; lists++) {
        uint64_t named;
        int found = find_in_list(*lists, uuid, position, &named);
        if (found >= 0)
            return found;
        if (named)
            return position >= 0 ? find_place_left(*lists, position, named) : -1;
    }
    return position;
}

int device_list_position(const char *const *lists, const char *uuid)
{
    LOCKED_TO_END(list_lock);
    return position_locked(lists, uuid);
}
