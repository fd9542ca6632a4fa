/* SPDX-License-Identifier: Apache-2.0 */
#include "net/message.h"

#include <stdlib.h>

struct budget {
    size_t left;
};

static void *budget_alloc(void *context, size_t size)
{
    struct budget *budget = context;
    /* What malloc keeps beside each block counts too. */
    size_t cost = size + 2 * sizeof(size_t);
    if (cost < size || cost > budget->left)
        return NULL;
    budget->left -= cost;
    return malloc(size);
}

static void budget_free(void *context, void *pointer)
{
    (void)context;
    free(pointer);
}

void *message_unpack(const ProtobufCMessageDescriptor *descriptor, const uint8_t *bytes,
    size_t size, size_t heap_bytes)
{
    struct budget budget = {heap_bytes};
    ProtobufCAllocator allocator = {budget_alloc, budget_free, &budget};
    return protobuf_c_message_unpack(descriptor, &allocator, size, bytes);
}

void message_free(void *message)
{
    ProtobufCAllocator allocator = {budget_alloc, budget_free, NULL};
    if (message)
        protobuf_c_message_free_unpacked(message, &allocator);
}

uint8_t *message_pack(const void *message, size_t *ret_size)
{
    size_t size = protobuf_c_message_get_packed_size(message);
    uint8_t *bytes = malloc(size ? size : 1);
    if (bytes)
        *ret_size = protobuf_c_message_pack(message, bytes);
    return bytes;
}

/* The code point that begins at `text`, none of which is overlong, a surrogate or above U+10FFFF;
 * its bytes, or 0. */
static unsigned sequence_bytes(const unsigned char *text)
{
    static const struct {
        unsigned char mask, lead, low_mask;
        unsigned bytes;
    } forms[] = {
        {0x80, 0x00, 0x7f, 1}, {0xe0, 0xc0, 0x1f, 2}, {0xf0, 0xe0, 0x0f, 3}, {0xf8, 0xf0, 0x07, 4}};
    static const uint32_t lowest[] = {0, 0, 0x80, 0x800, 0x10000};
    for (unsigned i = 0; i < sizeof(forms) / sizeof(*forms); i++) {
        if ((text[0] & forms[i].mask) != forms[i].lead)
            continue;
        uint32_t point = text[0] & forms[i].low_mask;
        for (unsigned j = 1; j < forms[i].bytes; j++) {
            if ((text[j] & 0xc0) != 0x80) /* the text's NUL ends this too */
                return 0;
            point = point << 6 | (text[j] & 0x3f);
        }
        bool bad = point < lowest[forms[i].bytes] || point > 0x10ffff ||
                   (point >= 0xd800 && point <= 0xdfff);
        return bad ? 0 : forms[i].bytes;
    }
    return 0;
}

bool message_is_utf8(const char *text)
{
    for (const unsigned char *at = (const unsigned char *)text; *at;) {
        unsigned bytes = sequence_bytes(at);
        if (!bytes)
            return false;
        at += bytes;
    }
    return true;
}
