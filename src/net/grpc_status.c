/* SPDX-License-Identifier: Apache-2.0 */
#include "net/grpc_status.h"

#include <string.h>

static const char *const names[] = {"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED"};

const char *grpc_status_name(int status)
{
    return status >= GRPC_OK && status <= GRPC_UNAUTHENTICATED ? names[status] : "UNKNOWN";
}

int grpc_status_parse(const char *text, size_t length)
{
    int status = 0;
    if (length < 1 || length > 2)
        return GRPC_UNKNOWN;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9')
            return GRPC_UNKNOWN;
        status = status * 10 + (text[i] - '0');
    }
    return status <= GRPC_UNAUTHENTICATED ? status : GRPC_UNKNOWN;
}

size_t grpc_status_encode(const char *message, char ret_text[GRPC_STATUS_ENCODED_BYTES])
{
    static const char digits[] = "0123456789ABCDEF";
    size_t length = 0;
    for (size_t i = 0; message[i] && i < GRPC_STATUS_MESSAGE_BYTES - 1; i++) {
        unsigned char byte = (unsigned char)message[i];
        if (byte >= ' ' && byte <= '~' && byte != '%') {
            ret_text[length++] = (char)byte;
            continue;
        }
        ret_text[length++] = '%';
        ret_text[length++] = digits[byte >> 4];
        ret_text[length++] = digits[byte & 15];
    }
    ret_text[length] = '\0';
    return length;
}

static int hex_value(char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    if (digit >= 'a' && digit <= 'f')
        return digit - 'a' + 10;
    return digit >= 'A' && digit <= 'F' ? digit - 'A' + 10 : -1;
}

void grpc_status_decode(const char *text, size_t length, char *ret_message, size_t room)
{
    size_t used = 0;
    for (size_t i = 0; i < length && used + 1 < room; i++) {
        char byte = text[i];
        if (byte == '%' && length - i > 2 && hex_value(text[i + 1]) >= 0 &&
            hex_value(text[i + 2]) >= 0) {
            byte = (char)(hex_value(text[i + 1]) << 4 | hex_value(text[i + 2]));
            i += 2;
        }
        ret_message[used++] = byte ? byte : '?';
    }
    ret_message[used] = '\0';
}

bool grpc_status_timeout(const char *text, size_t length, uint64_t *ret_ms)
{
    static const struct {
        char unit;
        uint64_t times, parts; /* milliseconds = value * times / parts */
    } units[] = {{'H', 3600000, 1}, {'M', 60000, 1}, {'S', 1000, 1}, {'m', 1, 1}, {'u', 1, 1000},
        {'n', 1, 1000000}};
    uint64_t value = 0;
    if (length < 2 || length > 9)
        return false;
    for (size_t i = 0; i < length - 1; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        value = value * 10 + (uint64_t)(text[i] - '0');
    }
    for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++) {
        if (units[i].unit != text[length - 1])
            continue;
        *ret_ms = (value * units[i].times + units[i].parts - 1) / units[i].parts;
        return true;
    }
    return false;
}
