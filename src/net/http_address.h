/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses to listen at, as Go programs write them. Pure. */
#ifndef VGPU_NET_HTTP_ADDRESS_H
#define VGPU_NET_HTTP_ADDRESS_H

#include <sys/socket.h>

#define HTTP_ADDRESS_ACCEPTED ":PORT, IPV4:PORT or [IPV6]:PORT"

/* ":9394" is every address, by IPv6 where IPv4 is meant too (an unspecified IPv6 address). Returns
 * 0, or -EINVAL. */
int http_address_parse(const char *text, struct sockaddr_storage *ret_address, socklen_t *ret_bytes)
    __attribute__((warn_unused_result));

#endif
