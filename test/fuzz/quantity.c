/* SPDX-License-Identifier: Apache-2.0 */
/* Quantities: bounds, and that other words for the same amount are the same. */
#include "kube/quantity.h"

#include "fuzz.h"

#include <errno.h>

static struct quantity check_one(const char *text, int wanted)
{
    struct quantity quantity = {1};
    int64_t value = 77, milli = 77;
    FUZZ_CHECK(quantity_parse(text, &quantity) == wanted);
    if (wanted) {
        FUZZ_CHECK(quantity.nano == 1);
        return quantity;
    }
    struct quantity max = {1};
    for (int i = 0; i < 36; i++)
        max.nano *= 10;
    FUZZ_CHECK(quantity_compare(&quantity, &max) <= 0);
    int error = quantity_value(&quantity, &value);
    FUZZ_CHECK(error == 0 || (error == -ERANGE && value == 77));
    FUZZ_CHECK(error || quantity.nano / 1000000000 == value ||
               quantity.nano / 1000000000 + (quantity.nano > 0 ? 1 : -1) == value);
    error = quantity_milli(&quantity, &milli);
    FUZZ_CHECK(error == 0 || (error == -ERANGE && milli == 77));
    return quantity;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    struct quantity quantity = {0};
    int result = quantity_parse(text, &quantity);
    FUZZ_CHECK(result == 0 || result == -EINVAL);
    quantity = check_one(text, result);
    if (*text && *text != '+' && *text != '-') {
        char *other = malloc(strlen(text) + 4);
        sprintf(other, "-%s", text);
        struct quantity negative = check_one(other, result);
        FUZZ_CHECK(result || negative.nano == -quantity.nano);
        sprintf(other, "+00%s", text);
        struct quantity same = check_one(other, result);
        FUZZ_CHECK(result || same.nano == quantity.nano);
        free(other);
    }
    free(text);
    return 0;
}
