/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/machine/description_read.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define GIB (1024ull * 1024 * 1024)
#define MIB (1024ull * 1024)

bool sim_read_number(const char *text, uint64_t low, uint64_t high, uint32_t *ret_number)
{
    if (!isdigit((unsigned char)text[0]))
        return false;
    char *end;
    int errno_kept = errno; /* read within whichever call of the program's comes first */
    errno = 0;
    bool is_hex = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
    unsigned long long number = strtoull(text, &end, is_hex ? 16 : 10);
    bool overflows = errno != 0;
    errno = errno_kept;
    if (overflows || *end != '\0' || number < low || number > high)
        return false;
    *ret_number = (uint32_t)number;
    return true;
}

bool sim_read_size(const char *text, uint64_t *ret_bytes)
{
    if (!isdigit((unsigned char)text[0]) || text[1] == 'x' || text[1] == 'X')
        return false;
    char *end;
    double number = strtod(text, &end);
    uint64_t unit = 1;
    switch (tolower((unsigned char)*end)) {
    case 't':
        unit = 1024 * GIB;
        end++;
        break;
    case 'g':
        unit = GIB;
        end++;
        break;
    case 'm':
        unit = MIB;
        end++;
        break;
    case 'k':
        unit = 1024;
        end++;
        break;
    default:
        break;
    }
    if (unit > 1 && tolower((unsigned char)*end) == 'i')
        end++;
    if (tolower((unsigned char)*end) == 'b')
        end++;
    if (*end != '\0' || !(number * (double)unit < 256.0 * 1024 * (double)GIB))
        return false;
    *ret_bytes = (uint64_t)(number * (double)unit);
    return true;
}

bool sim_read_pid_pair(const char *text, uint32_t *ret_inner, uint32_t *ret_outer)
{
    char inner[16];
    const char *colon = strchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : 0;
    if (length == 0 || length >= sizeof inner)
        return false;
    memcpy(inner, text, length);
    inner[length] = '\0';
    return sim_read_number(inner, 1, INT32_MAX, ret_inner) &&
           sim_read_number(colon + 1, 1, INT32_MAX, ret_outer);
}
