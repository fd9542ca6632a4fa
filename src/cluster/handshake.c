/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/handshake.h"

#include "codec/rfc3339.h"

#include <stdio.h>
#include <string.h>

static enum handshake_kind find_kind(const char *text)
{
    if (strstr(text, "Requesting"))
        return HANDSHAKE_REQUESTING;
    if (!strncmp(text, "Reported", 8))
        return HANDSHAKE_REPORTED;
    return !strncmp(text, "Deleted", 7) ? HANDSHAKE_DELETED : HANDSHAKE_OTHER;
}

struct handshake handshake_decode(const char *text)
{
    struct handshake handshake = {.kind = HANDSHAKE_ABSENT};
    if (!text)
        return handshake;
    const char *time = strchr(text, '_');
    handshake.kind = find_kind(text);
    handshake.has_time =
        time && !rfc3339_parse_local(time + 1, strlen(time + 1), &handshake.local_seconds);
    return handshake;
}

int handshake_format_request(int64_t local_seconds, char text[HANDSHAKE_TEXT_BYTES])
{
    char time[RFC3339_TEXT_BYTES];
    int result = rfc3339_format_local(local_seconds, time);
    if (!result)
        snprintf(text, HANDSHAKE_TEXT_BYTES, "Requesting_%s", time);
    return result;
}

int handshake_format_answer(int64_t utc_seconds, char text[HANDSHAKE_TEXT_BYTES])
{
    char time[RFC3339_TEXT_BYTES];
    int result = rfc3339_format_local(utc_seconds, time);
    if (!result)
        snprintf(text, HANDSHAKE_TEXT_BYTES, "Reported %s +0000 UTC", time);
    return result;
}
