/* SPDX-License-Identifier: Apache-2.0 */
/* A Pod's device string: what is taken reads the same after it was written. */
#include "cluster/pod_devices.h"

#include "cluster/erase.h"
#include "fuzz.h"

static void check_same(const struct pod_devices *devices, const char *text)
{
    struct pod_devices again;
    FUZZ_CHECK(!pod_devices_decode(text, &again, NULL));
    FUZZ_CHECK(again.count == devices->count);
    for (size_t c = 0; c < again.count; c++)
        FUZZ_CHECK(pod_devices_equal(&again.containers[c], &devices->containers[c]));
    pod_devices_finish(&again);
}

static void check_bounds(const struct pod_devices *devices)
{
    FUZZ_CHECK(devices->count <= POD_DEVICES_CONTAINERS_MAX);
    for (size_t c = 0; c < devices->count; c++) {
        FUZZ_CHECK(devices->containers[c].count <= POD_DEVICES_DEVICES_MAX);
        for (size_t d = 0; d < devices->containers[c].count; d++) {
            const struct pod_device *device = &devices->containers[c].devices[d];
            FUZZ_CHECK(*device->uuid && *device->type && !strpbrk(device->uuid, ",:;\n "));
            FUZZ_CHECK(device->memory_mib >= 0 && device->cores_percent >= 0);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    struct pod_devices devices;
    struct error error = {.text = ""};
    if (pod_devices_decode(text, &devices, &error)) {
        FUZZ_CHECK(*error.text && error.code > 0);
        free(text);
        return 0;
    }
    char *written = pod_devices_encode(&devices);
    check_bounds(&devices);
    FUZZ_CHECK(written);
    check_same(&devices, written);
    free(written);
    for (size_t slot = 0; slot < devices.count; slot++) {
        size_t used = pod_devices_used(&devices);
        bool had = devices.containers[slot].count > 0;
        const struct allocate_step step = {.slot = slot};
        written = erase_steps(&devices, &step, 1);
        FUZZ_CHECK(written && pod_devices_used(&devices) == used - had);
        check_same(&devices, written);
        FUZZ_CHECK(used > had || erase_is_done(written));
        free(written);
        if (slot == 8)
            break;
    }
    pod_devices_finish(&devices);
    free(text);
    return 0;
}
