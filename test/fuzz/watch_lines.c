/* SPDX-License-Identifier: Apache-2.0 */
/* The stream of a watch: it gives the same events in one piece and in small ones. What it gives
 * goes through the accessors. */
#include "kube/watch_lines.h"

#include "fuzz.h"
#include "kube/object.h"

#include <errno.h>

struct taken {
    uint64_t sum;
    unsigned count;
};

static int take(void *context, enum watch_line_type type, const json_t *object)
{
    struct taken *taken = context;
    FUZZ_CHECK(type <= WATCH_LINE_ERROR && json_is_object(object));
    taken->count++;
    taken->sum = taken->sum * 31 + type + strlen(object_name(object)) +
                 strlen(object_uid(object)) * 7 + strlen(object_resource_version(object)) * 13;
    for (size_t i = 0; i < object_container_count(object, OBJECT_CONTAINERS); i++) {
        struct quantity amount;
        int result = object_resource(
            object_container(object, OBJECT_CONTAINERS, i), "limits", "nvidia.com/gpu", &amount);
        FUZZ_CHECK(result == 0 || result == -EINVAL || result == -ENOENT);
    }
    return 0;
}

static int feed(const uint8_t *data, size_t size, size_t piece, struct taken *taken)
{
    struct watch_lines lines = {.bytes_max = 4096};
    struct error error = {0};
    int result = 0;
    for (size_t at = 0; !result && at < size; at += piece)
        result = watch_lines_feed(&lines, (const char *)data + at,
            size - at < piece ? size - at : piece, take, taken, &error);
    FUZZ_CHECK(result == 0 || result == -EINVAL || result == -EFBIG);
    FUZZ_CHECK(!result == !error.text[0]);
    FUZZ_CHECK(lines.bytes <= 4096);
    watch_lines_finish(&lines);
    return result;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct taken whole = {0}, pieces = {0};
    if (!size)
        return 0;
    int result = feed(data + 1, size - 1, size, &whole);
    int other = feed(data + 1, size - 1, 1 + data[0] % 64, &pieces);
    /* A line longer than the bound is taken where it comes in one piece. */
    if (result != -EFBIG && other != -EFBIG)
        FUZZ_CHECK(result == other && whole.sum == pieces.sum && whole.count == pieces.count);
    return 0;
}
