/* SPDX-License-Identifier: Apache-2.0 */
/* gRPC's status codes and the texts of its headers (grpc PROTOCOL-HTTP2). */
#ifndef VGPU_NET_GRPC_STATUS_H
#define VGPU_NET_GRPC_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum grpc_status {
    GRPC_OK = 0,
    GRPC_CANCELLED = 1,
    GRPC_UNKNOWN = 2,
    GRPC_INVALID_ARGUMENT = 3,
    GRPC_DEADLINE_EXCEEDED = 4,
    GRPC_NOT_FOUND = 5,
    GRPC_ALREADY_EXISTS = 6,
    GRPC_PERMISSION_DENIED = 7,
    GRPC_RESOURCE_EXHAUSTED = 8,
    GRPC_FAILED_PRECONDITION = 9,
    GRPC_ABORTED = 10,
    GRPC_OUT_OF_RANGE = 11,
    GRPC_UNIMPLEMENTED = 12,
    GRPC_INTERNAL = 13,
    GRPC_UNAVAILABLE = 14,
    GRPC_DATA_LOSS = 15,
    GRPC_UNAUTHENTICATED = 16,
};

#define GRPC_STATUS_MESSAGE_BYTES 1024 /* of a message with its NUL, before it is encoded */
#define GRPC_STATUS_ENCODED_BYTES (3 * GRPC_STATUS_MESSAGE_BYTES)

/* "UNAVAILABLE"; "UNKNOWN" where it is none of the codes. */
const char *grpc_status_name(int status);

/* Digits of 0 to 16, anything else is GRPC_UNKNOWN, as the protocol wants it. */
int grpc_status_parse(const char *text, size_t length);

/* The message as the value of grpc-message: printable ASCII but '%' stays, any other byte becomes
 * %XX. Cut after GRPC_STATUS_MESSAGE_BYTES - 1 bytes. Returns the length. */
size_t grpc_status_encode(const char *message, char ret_text[GRPC_STATUS_ENCODED_BYTES]);

/* The reverse; a '%' that two hexadecimal digits do not follow stays, as the protocol wants it. NUL
 * bytes become '?'. Cut to `room` - 1 bytes, and terminated. */
void grpc_status_decode(const char *text, size_t length, char *ret_message, size_t room);

/* The value of grpc-timeout: 1 to 8 digits and a unit of H M S m u n. Nanoseconds below 1 ms count
 * as 1 ms. Returns false where it is no such value. */
bool grpc_status_timeout(const char *text, size_t length, uint64_t *ret_ms);

#endif
