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

#define DEVICES_MAX 64
#define PROC_DIRECTORY "/proc/driver/nvidia/gpus"

struct known_device {
    char pci[24]; /* sorts as PCI addresses do */
    char uuid[48];
    int minor;
};

struct list {
    unsigned count;
    struct known_device devices[DEVICES_MAX];
};

/* One learns, and the others wait for it. Held over calls of NVML, so nobody takes it from within
 * the driver; what it learns is looked up under the other lock alone. */
static struct lock learn_lock;
static struct lock list_lock;
static bool prepared, asked_nvml;
static struct list known;
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
    /* A card that nobody has opened yet shows question marks. */
    if (!device.uuid[0] || strchr(device.uuid, '?') || !minor[0] || list->count >= DEVICES_MAX)
        return false;
    device.minor = (int)parse_digits(minor);
    snprintf(path, sizeof(path), "/dev/nvidia%d", device.minor);
    if (access(path, F_OK) != 0)
        return true; /* the host's, not the container's */
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

/* NVML counts by PCI address. */
static void learn_from_nvml(struct list *list)
{
    unsigned count = 0;
    if (!nvml_load(true) || nvml.nvmlInit_v2() != NVML_SUCCESS)
        return;
    if (nvml.nvmlDeviceGetCount_v2(&count) != NVML_SUCCESS)
        count = 0;
    for (unsigned i = 0; i < count && list->count < DEVICES_MAX; i++) {
        nvmlDevice_t handle;
        struct known_device device = {.minor = -1};
        unsigned minor;
        if (nvml.nvmlDeviceGetHandleByIndex_v2(i, &handle) != NVML_SUCCESS ||
            nvml.nvmlDeviceGetUUID(handle, device.uuid, sizeof(device.uuid)) != NVML_SUCCESS)
            continue;
        if (nvml.nvmlDeviceGetMinorNumber(handle, &minor) == NVML_SUCCESS)
            device.minor = (int)minor;
        list->devices[list->count++] = device;
    }
    nvml.nvmlShutdown();
}

static void publish(const struct list *list)
{
    lock_take(&list_lock);
    known = *list;
    lock_release(&list_lock);
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
    lock_take(&learn_lock);
    if (!load_relaxed(&prepared))
        learn_locked(true);
    lock_release(&learn_lock);
}

static int find_known(const char *uuid) REQUIRES(list_lock)
{
    for (unsigned i = 0; i < known.count; i++) {
        if (!strcasecmp(known.devices[i].uuid, uuid))
            return (int)i;
    }
    return -1;
}

static bool is_known(const char *uuid)
{
    lock_take(&list_lock);
    bool found = find_known(uuid) >= 0;
    lock_release(&list_lock);
    return found;
}

void device_list_confirm(const char *uuid)
{
    if (!load_acquire(&prepared) || load_acquire(&asked_nvml) || learning)
        return;
    lock_take(&learn_lock);
    if (!load_relaxed(&asked_nvml) && !is_known(uuid)) {
        learn_locked(false);
        store_release(&asked_nvml, true);
    }
    lock_release(&learn_lock);
}

void device_list_reset(void)
{
    lock_reset(&learn_lock);
    lock_reset(&list_lock);
    learning = false;
    if (!prepared)
        known.count = 0;
}

/* UUIDs may be shortened as CUDA allows; numbers are minors, or positions where no minor is known.
 */
static bool item_names(const char *item, const struct known_device *device, unsigned position)
{
    uint64_t number;
    if (parse_number(item, 1u << 20, &number) == 0)
        return device->minor >= 0 ? (uint64_t)device->minor == number : position == number;
    return *item && !strncasecmp(item, device->uuid, strlen(item));
}

int device_list_position(const char *names, const char *uuid)
{
    struct known_device device = {.minor = -1};
    lock_take(&list_lock);
    int position = load_relaxed(&prepared) ? find_known(uuid) : -1;
    if (position >= 0)
        device = known.devices[position];
    lock_release(&list_lock);
    if (!names)
        return position;
    snprintf(device.uuid, sizeof(device.uuid), "%s", uuid);
    char item[64];
    for (int i = 0; parse_list_next(&names, item, sizeof(item)); i++) {
        if (item_names(item, &device, position < 0 ? DEVICES_MAX : (unsigned)position))
            return i;
    }
    return -1;
}
