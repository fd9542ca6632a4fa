/* SPDX-License-Identifier: Apache-2.0 */
#include "net/http_address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <string.h>

static int parse_port(const char *text, uint16_t *ret_port)
{
    size_t digits = strspn(text, "0123456789");
    unsigned port = 0;
    if (!digits || digits > 5 || text[digits])
        return -EINVAL;
    for (size_t i = 0; i < digits; i++)
        port = port * 10 + (unsigned)(text[i] - '0');
    if (port > 65535)
        return -EINVAL;
    *ret_port = htons((uint16_t)port);
    return 0;
}

int http_address_parse(const char *text, struct sockaddr_storage *ret_address, socklen_t *ret_bytes)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    char host[INET6_ADDRSTRLEN + 2];
    const char *colon = strrchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : 0;
    if (!colon || length >= sizeof(host) || parse_port(colon + 1, &v4.sin_port))
        return -EINVAL;
    memcpy(host, text, length);
    host[length] = 0;
    v6.sin6_port = v4.sin_port;
    if (length && host[0] != '[') {
        if (inet_pton(AF_INET, host, &v4.sin_addr) != 1)
            return -EINVAL;
        memset(ret_address, 0, sizeof(*ret_address));
        memcpy(ret_address, &v4, sizeof(v4));
        *ret_bytes = sizeof(v4);
        return 0;
    }
    if (length) {
        if (host[length - 1] != ']')
            return -EINVAL;
        host[length - 1] = 0;
        if (inet_pton(AF_INET6, host + 1, &v6.sin6_addr) != 1)
            return -EINVAL;
    }
    memset(ret_address, 0, sizeof(*ret_address));
    memcpy(ret_address, &v6, sizeof(v6));
    *ret_bytes = sizeof(v6);
    return 0;
}
