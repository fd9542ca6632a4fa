/* SPDX-License-Identifier: Apache-2.0 */
#include "net/grpc_frame.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_BYTES 1024

void grpc_frame_init(struct grpc_frame *frame, size_t max_bytes)
{
    *frame = (struct grpc_frame){.max_bytes = max_bytes};
}

void grpc_frame_finish(struct grpc_frame *frame)
{
    free(frame->message);
    *frame = (struct grpc_frame){.max_bytes = frame->max_bytes};
}

uint32_t grpc_frame_promised(const struct grpc_frame *frame)
{
    const uint8_t *header = frame->header;
    if (frame->header_bytes < GRPC_FRAME_HEADER_BYTES)
        return 0;
    return (uint32_t)header[1] << 24 | (uint32_t)header[2] << 16 | (uint32_t)header[3] << 8 |
           header[4];
}

static int check_header(const struct grpc_frame *frame)
{
    if (frame->header[0] > 1)
        return -EBADMSG;
    if (frame->header[0] == 1)
        return -ENOTSUP;
    return grpc_frame_promised(frame) > frame->max_bytes ? -EMSGSIZE : 0;
}

/* Room for `bytes` in all, at least doubled, so that the copying stays linear. */
static int make_room(struct grpc_frame *frame, size_t bytes)
{
    size_t room = frame->room ? frame->room : FIRST_BYTES;
    while (room < bytes)
        room *= 2;
    if (room > grpc_frame_promised(frame))
        room = grpc_frame_promised(frame);
    if (room <= frame->room)
        return 0;
    uint8_t *message = realloc(frame->message, room);
    if (!message)
        return -ENOMEM;
    frame->message = message;
    frame->room = room;
    return 0;
}

int grpc_frame_feed(struct grpc_frame *frame, const uint8_t *data, size_t size, size_t *ret_used)
{
    size_t used = 0;
    while (frame->header_bytes < GRPC_FRAME_HEADER_BYTES) {
        if (used == size) {
            *ret_used = used;
            return 0;
        }
        frame->header[frame->header_bytes++] = data[used++];
        /* The first byte alone may be wrong already. */
        int bad = frame->header_bytes == GRPC_FRAME_HEADER_BYTES || frame->header[0] > 1
                      ? check_header(frame)
                      : 0;
        if (bad)
            return bad;
    }
    size_t left = grpc_frame_promised(frame) - frame->bytes;
    size_t take = size - used < left ? size - used : left;
    if (take) {
        int failed = make_room(frame, frame->bytes + take);
        if (failed)
            return failed;
        memcpy(frame->message + frame->bytes, data + used, take);
        frame->bytes += take;
    }
    *ret_used = used + take;
    return take == left;
}

void grpc_frame_next(struct grpc_frame *frame)
{
    grpc_frame_finish(frame);
}

bool grpc_frame_between(const struct grpc_frame *frame)
{
    return frame->header_bytes == 0;
}

uint8_t *grpc_frame_make(const void *message, size_t bytes, size_t *ret_bytes)
{
    uint8_t *frame = bytes > UINT32_MAX ? NULL : malloc(bytes + GRPC_FRAME_HEADER_BYTES);
    if (!frame)
        return NULL;
    frame[0] = 0;
    for (unsigned i = 0; i < 4; i++)
        frame[1 + i] = (uint8_t)(bytes >> (24 - 8 * i));
    if (bytes)
        memcpy(frame + GRPC_FRAME_HEADER_BYTES, message, bytes);
    *ret_bytes = bytes + GRPC_FRAME_HEADER_BYTES;
    return frame;
}
