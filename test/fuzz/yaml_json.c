/* SPDX-License-Identifier: Apache-2.0 */
/* YAML of a device configuration: what is accepted can be written as JSON and read back, and what
 * is refused has one line. */
#include "node/yaml_json.h"

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error error = {.text = ""};
    json_t *value = yaml_json_read("f", (const char *)data, size, &error);
    if (!value) {
        FUZZ_CHECK(!strncmp(error.text, "f: ", 3) && !strpbrk(error.text, "\n\x1b"));
        return 0;
    }
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    FUZZ_CHECK(text);
    json_t *again = json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    FUZZ_CHECK(json_equal(value, again));
    json_decref(again);
    json_decref(value);
    free(text);
    return 0;
}
