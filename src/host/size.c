/* SPDX-License-Identifier: Apache-2.0 */
#include "host/size.h"

#include <stdio.h>

struct size_text size_text(uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    struct size_text size = {"0"};
    double value = (double)bytes;
    unsigned unit = 0;
    /* As it will be printed: what rounds up to 1024 is one of the next unit. */
    while (value >= (unit < 3 ? 1023.5 : 1023.95) && unit < 6) {
        value /= 1024;
        unit++;
    }
    if (bytes)
        snprintf(size.text, sizeof(size.text), unit < 3 ? "%.0f%s" : "%.1f%s", value, units[unit]);
    return size;
}
