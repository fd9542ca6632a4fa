/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/number.h"

#include <errno.h>
#include <string.h>

int number_parse(const char *text, size_t length, int64_t min, int64_t max, int64_t *ret_number)
{
    size_t at = length && (*text == '-' || *text == '+');
    bool negative = at && *text == '-', fits = true;
    int64_t value = 0;
    if (at == length)
        return -EINVAL;
    for (; at < length; at++) {
        int digit = text[at] - '0';
        if (digit < 0 || digit > 9)
            return -EINVAL;
        /* Downward: the lowest number has no positive twin. */
        fits = fits && !__builtin_mul_overflow(value, 10, &value) &&
               !__builtin_sub_overflow(value, digit, &value);
    }
    if (fits && !negative)
        fits = !__builtin_sub_overflow((int64_t)0, value, &value);
    if (!fits || value < min || value > max)
        return -ERANGE;
    *ret_number = value;
    return 0;
}

int number_parse_bool(const char *text, size_t length, bool *ret_truth)
{
    static const char *const spellings[2][6] = {
        {"0", "f", "F", "FALSE", "false", "False"}, {"1", "t", "T", "TRUE", "true", "True"}};
    for (int truth = 0; truth < 2; truth++) {
        for (int i = 0; i < 6; i++) {
            const char *spelling = spellings[truth][i];
            if (strlen(spelling) == length && !memcmp(spelling, text, length)) {
                *ret_truth = truth;
                return 0;
            }
        }
    }
    return -EINVAL;
}
