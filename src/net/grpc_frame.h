/* SPDX-License-Identifier: Apache-2.0 */
/* gRPC's framing of messages in a body: a byte that tells whether the message is compressed, its
 * length in 4 bytes, the most significant first, and the message (grpc PROTOCOL-HTTP2). */
#ifndef VGPU_NET_GRPC_FRAME_H
#define VGPU_NET_GRPC_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GRPC_FRAME_HEADER_BYTES 5
/* What a receiver accepts unless it says otherwise; also what grpc-go's client accepts, and so the
 * kubelet for the answers of a device plugin. */
#define GRPC_FRAME_MESSAGE_BYTES (4 << 20)

/* A reader of frames, fed in any pieces. Memory grows with what arrived, not with what a header
 * promises. */
struct grpc_frame {
    size_t max_bytes; /* of one message */
    uint8_t header[GRPC_FRAME_HEADER_BYTES];
    size_t header_bytes; /* of these have come */
    uint8_t *message;
    size_t bytes, room; /* of the message: come, allocated */
};

void grpc_frame_init(struct grpc_frame *frame, size_t max_bytes);
void grpc_frame_finish(struct grpc_frame *frame);

/* Takes bytes up to the end of one message; `ret_used` tells how many. Returns 1 when a message is
 * complete: frame->message, frame->bytes, valid until grpc_frame_next, which must come before more
 * is fed. 0: all was used and the message is not complete. -ENOTSUP: it is compressed, -EBADMSG:
 * the first byte is neither 0 nor 1, -EMSGSIZE: it is longer than max_bytes, -ENOMEM; after these
 * the reader can only be finished. */
__attribute__((warn_unused_result)) int grpc_frame_feed(
    struct grpc_frame *frame, const uint8_t *data, size_t size, size_t *ret_used);

/* Drops the complete message. */
void grpc_frame_next(struct grpc_frame *frame);

/* Whether the input may end here: between messages. */
bool grpc_frame_between(const struct grpc_frame *frame);

/* The length that the header promises; 0 as long as it is incomplete. */
uint32_t grpc_frame_promised(const struct grpc_frame *frame);

/* A frame of its own with the message in it, to be freed; NULL without memory or above 4 GiB. */
uint8_t *grpc_frame_make(const void *message, size_t bytes, size_t *ret_bytes);

#endif
