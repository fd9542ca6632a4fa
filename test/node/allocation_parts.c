/* SPDX-License-Identifier: Apache-2.0 */
/* The pure parts of the allocation: records, wishes for limits, and what is given away. */
#include "check.h"

#include "node/allocation/allocation_files.h"
#include "node/allocation/allocation_limits.h"
#include "node/allocation/allocation_record.h"
#include "node/allocation/allocation_usage.h"

#include <jansson.h>

static const char whole[] =
    "{\"version\":1, \"id\":\"00112233445566778899aabbccddeeff\", \"serial\":7, "
    "\"resource\":\"r\", "
    "\"ids\":[\"GPU-1-0\",\"GPU-2-3\"], \"namespace\":\"s\", \"pod\":\"p\", \"uid\":\"u\", "
    "\"container\":\"c\", \"slot\":2, \"init\":true, \"sidecar\":true, \"limited\":true, "
    "\"devices\":[{\"uuid\":\"GPU-1\", \"type\":\"NVIDIA\", \"memory_mib\":300, \"cores\":40, "
    "\"now_memory_mib\":200, \"now_cores\":30}], \"directory\":\"u_c\", \"cache\":\"x.cache\", "
    "\"priority\":1, \"sure\":true, \"wish\":\"{\\\\n}\", \"restore\":[{\"namespace\":\"s\", "
    "\"pod\":\"q\", \"uid\":\"v\", \"slot\":1}]}";

static int decode(const char *text, struct allocation_record **ret_record, struct error *error)
{
    json_t *object = json_loads(text, 0, NULL);
    int result = object ? allocation_record_decode(object, ret_record, error) : -1000;
    json_decref(object);
    return result;
}

TEST("a record is the same after it was written and read")
{
    struct allocation_record *record;
    struct error error = {.text = ""};
    CHECK_EQ(decode(whole, &record, &error), 0);
    CHECK_STR(error.text, "");
    json_t *before = json_loads(whole, 0, NULL), *after = allocation_record_encode(record);
    CHECK(json_equal(before, after));
    CHECK_EQ(record->serial, 7);
    CHECK_EQ(record->slot, 2);
    CHECK_EQ(record->devices[0].memory_mib, 200);
    CHECK_EQ(record->devices[0].given.memory_mib, 300);
    CHECK_EQ(record->restore_count, 1);
    json_decref(before);
    json_decref(after);
    allocation_record_destroy(record);
}

TEST("a record that is not whole, or leads elsewhere, is refused with what is wrong")
{
    static const struct {
        const char *key, *value, *says;
    } bad[] = {{"version", "2", "version"}, {"version", NULL, "version"}, {"uid", NULL, "uid"},
        {"uid", "5", "uid"}, {"ids", "[1]", "device ID"}, {"slot", "-1", "slot"},
        {"slot", "1e9", "slot"}, {"directory", "\"../../etc\"", "directory"},
        {"directory", "\"a/b\"", "directory"}, {"directory", NULL, "directory"},
        {"cache", "\"\"", "cache"}, {"serial", "-5", "serial"},
        {"devices", "[{\"uuid\":\"g\", \"memory_mib\":-1}]", "memory_mib"},
        {"devices", "3", "devices"}, {"restore", "[{}]", "namespace"},
        {"id", "\"00112233445566778899aabbccddeeff00\"", "id"}, {"init", "\"yes\"", "init"}};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct allocation_record *record = NULL;
        struct error error = {.text = ""};
        json_t *object = json_loads(whole, 0, NULL);
        if (bad[i].value)
            json_object_set_new(
                object, bad[i].key, json_loads(bad[i].value, JSON_DECODE_ANY, NULL));
        else
            json_object_del(object, bad[i].key);
        CHECK(allocation_record_decode(object, &record, &error) < 0);
        CHECK(!record);
        if (!strstr(error.text, bad[i].says))
            CHECK_STR(error.text, bad[i].says);
        json_decref(object);
    }
}

TEST("device IDs are compared as sets")
{
    struct allocation_record *record;
    static const char *const same[] = {"GPU-2-3", "GPU-1-0"}, *const part[] = {"GPU-2-3"},
                             *const other[] = {"GPU-2-3", "GPU-1-1"}, *const none[] = {"GPU-9-0"};
    CHECK_EQ(decode(whole, &record, NULL), 0);
    CHECK(allocation_record_has_ids(record, same, 2));
    CHECK(!allocation_record_has_ids(record, part, 1));
    CHECK(!allocation_record_has_ids(record, other, 2));
    CHECK(!allocation_record_has_ids(record, none, 0));
    CHECK(allocation_record_shares_ids(record, part, 1));
    CHECK(allocation_record_shares_ids(record, other, 2));
    CHECK(!allocation_record_shares_ids(record, none, 1));
    allocation_record_destroy(record);
}

TEST("random names have their form")
{
    char uuid[37], id[ALLOCATION_ID_BYTES], other[ALLOCATION_ID_BYTES];
    allocation_files_random_uuid(uuid);
    allocation_files_random_id(id);
    allocation_files_random_id(other);
    CHECK_EQ(strlen(uuid), 36);
    CHECK_EQ(uuid[14], '4');
    CHECK(strchr("89ab", uuid[19]));
    CHECK_EQ(strspn(uuid, "0123456789abcdef-"), 36);
    CHECK_EQ(strspn(id, "0123456789abcdef"), 32);
    CHECK(strcmp(id, other) != 0);
}

TEST("a Pod counts as much as it has at its worst moment")
{
    /* Two init containers, the first with two parts; two others. */
    const struct allocation_use uses[] = {{"a", 0, true, 500, 10}, {"a", 0, true, 50, 10},
        {"a", 1, true, 300, 50}, {"a", 2, false, 200, 20}, {"a", 3, false, 200, 20},
        {"b", 0, false, 100, 0}};
    struct allocation_load load = allocation_usage_sum(uses, 6);
    CHECK_EQ(load.memory_mib, 650);
    CHECK_EQ(load.cores_percent, 50);
    CHECK_EQ(load.containers, 3);
    load = allocation_usage_sum(uses, 0);
    CHECK_EQ(load.memory_mib, 0);
    CHECK_EQ(load.containers, 0);
}

TEST("an init container counts beside the sidecars before it, and not beside those after it")
{
    const struct allocation_use uses[] = {{"a", 0, true, 700, 0}, {"a", 1, false, 300, 30},
        {"a", 2, true, 500, 60}, {"a", 3, false, 100, 90}, {"a", 4, false, 200, 0}};
    struct allocation_load load = allocation_usage_sum(uses, 5);
    CHECK_EQ(load.memory_mib, 800); /* 300 + 500 */
    CHECK_EQ(load.cores_percent, 120);
    CHECK_EQ(load.containers, 3);
}

TEST("what would over-commit a card is refused with the figures")
{
    const struct allocation_use uses[] = {{"a", 0, false, 600, 60}, {"b", 0, false, 400, 40}};
    struct allocation_capacity capacity = {"GPU-1", 1000, 100, 2};
    struct error error;
    CHECK_EQ(allocation_usage_check(uses, 2, &capacity, &error), 0);
    capacity.memory_mib = 999;
    CHECK_EQ(allocation_usage_check(uses, 2, &capacity, &error), -ENOSPC);
    CHECK_STR(error.text, "device GPU-1: 600 MiB of memory are given away and 400 MiB more are "
                          "asked for, of 999 MiB");
    capacity.memory_mib = 0; /* not known */
    CHECK_EQ(allocation_usage_check(uses, 2, &capacity, &error), 0);
    capacity.cores_percent = 99;
    CHECK_EQ(allocation_usage_check(uses, 2, &capacity, &error), -ENOSPC);
    CHECK_STR(error.text,
        "device GPU-1: 60 % of the cores are given away and 40 % more are asked for, of 99 %");
    capacity = (struct allocation_capacity){"GPU-1", 1000, 100, 1};
    CHECK_EQ(allocation_usage_check(uses, 2, &capacity, &error), -ENOSPC);
    CHECK_STR(error.text, "device GPU-1: it is for 1 containers and has them");
}

TEST("a wish is read for its container, and all of it is checked")
{
    struct limits_wish wish;
    struct error error = {.text = ""};
    CHECK_EQ(limits_wish_read(NULL, "c", &wish, &error), 0);
    CHECK(!wish.has_memory && !wish.has_cores);
    CHECK_EQ(
        limits_wish_read("{\"c\": {\"gpumem\": 5}, \"d\": {\"gpucores\": 0}}", "c", &wish, &error),
        0);
    CHECK(wish.has_memory && !wish.has_cores);
    CHECK_EQ(wish.memory_mib, 5);
    CHECK_EQ(
        limits_wish_read("{\"c\": {\"gpumem\": 5}, \"d\": {\"gpucores\": 0}}", "d", &wish, &error),
        0);
    CHECK(!wish.has_memory && wish.has_cores);
    static const char *const bad[] = {"", "[]", "3", "{\"c\": 3}", "{\"c\": {\"gpumem\": 0}}",
        "{\"c\": {\"gpumem\": -1}}", "{\"c\": {\"gpumem\": \"5\"}}", "{\"c\": {\"gpumem\": 5e30}}",
        "{\"c\": {\"gpucores\": -1}}", "{\"c\": {\"memory\": 5}}", "{\"d\": {\"memory\": 5}}",
        "{\"c\": {\"gpumem\": 5}"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        error.text[0] = '\0';
        CHECK(limits_wish_read(bad[i], "c", &wish, &error) < 0);
        CHECK(strstr(error.text, "vgpu.io/limits"));
    }
}

TEST("a wish for less or for the same holds, one for more only with consent")
{
    struct allocation_device device = {.given = {.memory_mib = 1000, .cores_percent = 30}};
    struct limits_wish wish = {.has_memory = true, .memory_mib = 500};
    CHECK(!allocation_limits_apply(&device, &wish, false));
    CHECK_EQ(device.memory_mib, 500);
    CHECK_EQ(device.cores_percent, 30);
    wish.memory_mib = 1000;
    CHECK(!allocation_limits_apply(&device, &wish, false));
    CHECK_EQ(device.memory_mib, 1000);
    wish = (struct limits_wish){true, true, 1001, 10};
    CHECK(allocation_limits_apply(&device, &wish, false));
    CHECK_EQ(device.memory_mib, 1000);
    CHECK_EQ(device.cores_percent, 10);
    CHECK(!allocation_limits_apply(&device, &wish, true));
    CHECK_EQ(device.memory_mib, 1001);
    /* No limit is more than any. */
    wish = (struct limits_wish){.has_cores = true, .cores_percent = 0};
    CHECK(allocation_limits_apply(&device, &wish, false));
    CHECK_EQ(device.cores_percent, 30);
    device.given.cores_percent = 0;
    wish.cores_percent = 40;
    CHECK(!allocation_limits_apply(&device, &wish, false));
    CHECK_EQ(device.cores_percent, 40);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
