/* SPDX-License-Identifier: Apache-2.0 */
/* The register annotation, JSON and CSV: what is taken is written, and reads the same again. */
#include "cluster/node_devices.h"

#include "fuzz.h"

static void check_json(const struct node_devices *devices)
{
    char *first, *second;
    struct node_devices again;
    FUZZ_CHECK(!node_devices_encode_json(devices, &first, NULL));
    FUZZ_CHECK(!node_devices_decode(first, &again, NULL) && again.count == devices->count);
    FUZZ_CHECK(!node_devices_encode_json(&again, &second, NULL));
    FUZZ_CHECK(!strcmp(first, second));
    node_devices_finish(&again);
    free(first);
    free(second);
}

static void check_csv(const struct node_devices *devices, unsigned fields)
{
    char *first, *second;
    struct node_devices again = {0};
    if (!devices->count || node_devices_encode_csv(devices, fields, &first, NULL))
        return;
    FUZZ_CHECK(!node_devices_decode_csv(first, &again, NULL) && again.count == devices->count);
    if (fields == 9) {
        FUZZ_CHECK(!node_devices_encode_csv(&again, fields, &second, NULL));
        FUZZ_CHECK(!strcmp(first, second));
        free(second);
    }
    node_devices_finish(&again);
    free(first);
}

static bool is_utf8(const struct node_devices *devices)
{
    char *text = NULL;
    bool is = !node_devices_encode_json(devices, &text, NULL);
    free(text);
    return is;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    struct node_devices devices;
    struct error error = {.text = ""};
    if (node_devices_decode(text, &devices, &error)) {
        FUZZ_CHECK(*error.text && error.code > 0);
        free(text);
        return 0;
    }
    FUZZ_CHECK(devices.count <= NODE_DEVICES_MAX);
    /* CSV does not say what its bytes are. */
    if (is_utf8(&devices))
        check_json(&devices);
    check_csv(&devices, 7);
    check_csv(&devices, 9);
    node_devices_finish(&devices);
    free(text);
    return 0;
}
