/* SPDX-License-Identifier: Apache-2.0 */
/* The durable record of an allocation: whatever the file says, what is decoded is within its bounds
 * and encodes to what decodes to the same. */
#include "node/allocation/allocation_record.h"

#include "fuzz.h"

static void check_bounds(const struct allocation_record *record)
{
    FUZZ_CHECK(memchr(record->id, '\0', sizeof(record->id)));
    FUZZ_CHECK(record->id_count <= ALLOCATION_IDS_MAX);
    FUZZ_CHECK(record->restore_count <= ALLOCATION_RESTORES_MAX);
    for (size_t i = 0; i < record->id_count; i++)
        FUZZ_CHECK(record->ids[i]);
    /* Names below the node's directories, not a way out of them. */
    FUZZ_CHECK(strspn(record->id, "0123456789abcdef") == ALLOCATION_ID_BYTES - 1);
    FUZZ_CHECK(!record->limited || !strchr(record->directory, '/'));
    FUZZ_CHECK(!record->limited || !strchr(record->cache, '/'));
    for (size_t i = 0; i < record->device_count; i++)
        FUZZ_CHECK(memchr(record->devices[i].given.uuid, '\0', DEVICE_UUID_BYTES));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct allocation_record *record, *again;
    struct error error;
    json_t *object = json_loadb((const char *)data, size, 0, NULL);
    if (object && !allocation_record_decode(object, &record, &error)) {
        check_bounds(record);
        json_t *written = allocation_record_encode(record);
        FUZZ_CHECK(written && !allocation_record_decode(written, &again, &error));
        json_t *second = allocation_record_encode(again);
        FUZZ_CHECK(second && json_equal(written, second));
        json_decref(second);
        json_decref(written);
        allocation_record_destroy(again);
        allocation_record_destroy(record);
    }
    json_decref(object);
    return 0;
}
