/* SPDX-License-Identifier: Apache-2.0 */
/* The lists of Xids, the operator's annotation and the file of faults: whatever they say, no text
 * is left unterminated, and what is restored can be saved again. */
#include "node/health_state.h"

#include "fuzz.h"

static void check_line(void *context, const char *line)
{
    (void)context;
    FUZZ_CHECK(*line && !strpbrk(line, "\n\x1b"));
}

static void check_uuid(void *context, const char *uuid)
{
    unsigned *count = context;
    FUZZ_CHECK(*uuid && strlen(uuid) < DEVICE_UUID_BYTES && !strchr(uuid, ','));
    FUZZ_CHECK(++*count <= 1024);
}

static void check_saved(const json_t *saved)
{
    const char *uuid;
    json_t *value;
    json_object_foreach((json_t *)saved, uuid, value)
    {
        struct health_state state, again;
        struct error error;
        if (health_state_restore(saved, uuid, &state, &error))
            continue;
        FUZZ_CHECK(!health_state_is_healthy(&state));
        FUZZ_CHECK(memchr(state.reason, '\0', sizeof(state.reason)));
        json_t *written = health_state_save(&state, &uuid, 1);
        FUZZ_CHECK(written && health_state_restore(written, uuid, &again, &error) == 0);
        FUZZ_CHECK(again.energy_mj == state.energy_mj && again.since_s == state.since_s);
        json_decref(written);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    struct health_xids xids;
    unsigned count = 0;
    health_xids_read(&xids, text, text, check_line, NULL);
    FUZZ_CHECK(xids.ignored_count <= HEALTH_XIDS_MAX && xids.counted_count <= HEALTH_XIDS_MAX);
    /* What is disabled by its number never counts. */
    for (size_t i = 0; i < xids.ignored_count; i++)
        FUZZ_CHECK(!health_xids_counts(&xids, xids.ignored[i]));
    health_read_allowed(text, check_uuid, &count);
    json_t *saved = json_loads(text, 0, NULL);
    if (json_is_object(saved))
        check_saved(saved);
    json_decref(saved);
    free(text);
    return 0;
}
