/* SPDX-License-Identifier: Apache-2.0 */
#include "net/retry_after.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* In the C locale's words whatever the process's locale is; strptime goes by that. */
static int parse_date(const char *text, int64_t *ret_time)
{
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    char month[4] = "", zone[4] = "";
    int day, year, hour, minute, second, length = 0;
    if (strlen(text) != 29 || text[3] != ',')
        return -EINVAL;
    if (sscanf(text + 4, " %2d %3s %4d %2d:%2d:%2d %3s%n", &day, month, &year, &hour, &minute,
            &second, zone, &length) != 7 ||
        length != 25 || strcmp(zone, "GMT") != 0)
        return -EINVAL;
    const char *found = strlen(month) == 3 ? strstr(months, month) : NULL;
    if (!found || (found - months) % 3 || day < 1 || day > 31 || year < 1970 || hour < 0 ||
        hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 60)
        return -EINVAL;
    struct tm date = {.tm_year = year - 1900,
        .tm_mon = (int)(found - months) / 3,
        .tm_mday = day,
        .tm_hour = hour,
        .tm_min = minute,
        .tm_sec = second};
    *ret_time = timegm(&date);
    return 0;
}

static unsigned cut(int64_t seconds)
{
    if (seconds < 0)
        return 0;
    return seconds > RETRY_AFTER_SECONDS_MAX ? RETRY_AFTER_SECONDS_MAX : (unsigned)seconds;
}

int retry_after_parse(const char *text, int64_t now_s, unsigned *ret_seconds)
{
    size_t digits = strspn(text, "0123456789");
    if (digits && !text[digits]) {
        int64_t seconds = 0;
        for (size_t i = 0; i < digits; i++) {
            if (seconds <= RETRY_AFTER_SECONDS_MAX)
                seconds = seconds * 10 + (text[i] - '0');
        }
        *ret_seconds = cut(seconds);
        return 0;
    }
    int64_t time;
    int failure = parse_date(text, &time);
    if (!failure)
        *ret_seconds = cut(time > now_s ? time - now_s : 0);
    return failure;
}
