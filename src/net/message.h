/* SPDX-License-Identifier: Apache-2.0 */
/* Protocol Buffers messages from peers, decoded within a bound of memory: two bytes of input can
 * ask for a structure of 100 bytes. */
#ifndef VGPU_NET_MESSAGE_H
#define VGPU_NET_MESSAGE_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MESSAGE_HEAP_BYTES (64 << 20)

/* Decodes; NULL where the bytes are no such message, or where it would take more than `heap_bytes`
 * of memory. To be freed by message_free. Any thread. */
void *message_unpack(const ProtobufCMessageDescriptor *descriptor, const uint8_t *bytes,
    size_t size, size_t heap_bytes);

void message_free(void *message);

/* The message encoded, to be freed; NULL without memory. */
uint8_t *message_pack(const void *message, size_t *ret_size);

/* Whether the text is UTF-8. Receivers in Go refuse a message with a string that is not. */
bool message_is_utf8(const char *text);

#endif
