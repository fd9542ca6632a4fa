/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/rfc3339.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>

#define DAY_SECONDS 86400
#define DATE_TIME_LENGTH 19 /* of "2006-01-02T15:04:05" */

struct civil {
    int year, month, day, hour, minute, second;
};

/* Days since 1970-01-01. The year begins in March, so that the leap day is its last one. */
static int64_t days_from_civil(int year, int month, int day)
{
    int64_t y = year - (month <= 2);
    int64_t era = (y >= 0 ? y : y - 399) / 400;
    int64_t year_of_era = y - era * 400;
    int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year -
           719468;
}

static void civil_from_days(int64_t days, struct civil *civil)
{
    int64_t z = days + 719468;
    int64_t era = (z >= 0 ? z : z - 146096) / 146097;
    int64_t day_of_era = z - era * 146097;
    int64_t year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int64_t month = (5 * day_of_year + 2) / 153;
    civil->day = (int)(day_of_year - (153 * month + 2) / 5 + 1);
    civil->month = (int)(month < 10 ? month + 3 : month - 9);
    civil->year = (int)(year_of_era + era * 400 + (civil->month <= 2));
}

static int days_in_month(int year, int month)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return month == 2 && leap ? 29 : days[month - 1];
}

/* The digits of text[from..from+count), or -1. */
static int digits(const char *text, int from, int count)
{
    int value = 0;
    for (int i = from; i < from + count; i++) {
        if (text[i] < '0' || text[i] > '9')
            return -1;
        value = value * 10 + (text[i] - '0');
    }
    return value;
}

static int parse_date_time(const char *text, size_t length, char between, int64_t *ret_seconds)
{
    if (length < DATE_TIME_LENGTH || text[4] != '-' || text[7] != '-' || text[10] != between ||
        text[13] != ':' || text[16] != ':')
        return -EINVAL;
    struct civil civil = {digits(text, 0, 4), digits(text, 5, 2), digits(text, 8, 2),
        digits(text, 11, 2), digits(text, 14, 2), digits(text, 17, 2)};
    if (civil.year < 0 || civil.month < 1 || civil.month > 12 || civil.day < 1 ||
        civil.day > days_in_month(civil.year, civil.month) || civil.hour < 0 || civil.hour > 23 ||
        civil.minute < 0 || civil.minute > 59 || civil.second < 0 || civil.second > 59)
        return -EINVAL;
    *ret_seconds = days_from_civil(civil.year, civil.month, civil.day) * DAY_SECONDS +
                   civil.hour * INT64_C(3600) + civil.minute * INT64_C(60) + civil.second;
    return 0;
}

int rfc3339_parse(const char *text, size_t length, int64_t *ret_seconds)
{
    int64_t seconds;
    size_t at = DATE_TIME_LENGTH;
    if (parse_date_time(text, length, 'T', &seconds))
        return -EINVAL;
    if (at < length && text[at] == '.') {
        size_t first = ++at;
        while (at < length && text[at] >= '0' && text[at] <= '9')
            at++;
        if (at == first)
            return -EINVAL;
    }
    if (length - at == 1 && text[at] == 'Z') {
        *ret_seconds = seconds;
        return 0;
    }
    if (length - at != 6 || (text[at] != '+' && text[at] != '-') || text[at + 3] != ':')
        return -EINVAL;
    int hours = digits(text + at, 1, 2), minutes = digits(text + at, 4, 2);
    if (hours < 0 || hours > 24 || minutes < 0 || minutes > 59)
        return -EINVAL;
    int64_t offset = hours * 3600 + minutes * 60;
    *ret_seconds = text[at] == '+' ? seconds - offset : seconds + offset;
    return 0;
}

int rfc3339_parse_local(const char *text, size_t length, int64_t *ret_seconds)
{
    return length == DATE_TIME_LENGTH ? parse_date_time(text, length, ' ', ret_seconds) : -EINVAL;
}

static int format(int64_t seconds, char between, const char *zone, char text[RFC3339_TEXT_BYTES])
{
    struct civil civil;
    if (seconds < days_from_civil(0, 1, 1) * DAY_SECONDS ||
        seconds >= days_from_civil(10000, 1, 1) * DAY_SECONDS)
        return -ERANGE;
    int64_t days = seconds / DAY_SECONDS - (seconds % DAY_SECONDS < 0);
    int64_t second_of_day = seconds - days * DAY_SECONDS;
    civil_from_days(days, &civil);
    unsigned second = (unsigned)second_of_day;
    snprintf(text, RFC3339_TEXT_BYTES, "%04u-%02u-%02u%c%02u:%02u:%02u%s",
        (unsigned)civil.year % 10000, (unsigned)civil.month % 100, (unsigned)civil.day % 100,
        between, second / 3600 % 24, second / 60 % 60, second % 60, zone);
    return 0;
}

int rfc3339_format(int64_t seconds, char text[RFC3339_TEXT_BYTES])
{
    return format(seconds, 'T', "Z", text);
}

int rfc3339_format_local(int64_t seconds, char text[RFC3339_TEXT_BYTES])
{
    return format(seconds, ' ', "", text);
}
