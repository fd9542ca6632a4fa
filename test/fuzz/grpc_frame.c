/* SPDX-License-Identifier: Apache-2.0 */
/* gRPC's frames: the first byte is the piece in which the others are fed; what is read is what a
 * reader of the whole would read. Then the texts of gRPC's headers. */
#include "net/grpc_frame.h"
#include "net/grpc_status.h"

#include "fuzz.h"

#include <errno.h>

#define MAX 300

/* The message at the start of the bytes, by the document; its end, or a negative error, or 0 where
 * it is not whole. */
static long expect(const uint8_t *data, size_t size)
{
    if (size && data[0] > 1)
        return -EBADMSG;
    if (size < 5)
        return 0;
    size_t length = (size_t)data[1] << 24 | (size_t)data[2] << 16 | (size_t)data[3] << 8 | data[4];
    if (data[0] == 1)
        return -ENOTSUP;
    if (length > MAX)
        return -EMSGSIZE;
    return size - 5 >= length ? (long)(5 + length) : 0;
}

static void read_frames(const uint8_t *data, size_t size, size_t piece)
{
    struct grpc_frame frame;
    size_t at = 0, start = 0;
    grpc_frame_init(&frame, MAX);
    while (at < size) {
        size_t used = 0, take = piece < size - at ? piece : size - at;
        void *copy = fuzz_copy(data + at, take);
        int result = grpc_frame_feed(&frame, copy, take, &used);
        long wanted = expect(data + start, size - start);
        free(copy);
        if (result < 0) {
            FUZZ_CHECK(result == wanted);
            break;
        }
        FUZZ_CHECK(used <= take && (used || result));
        at += used;
        if (result) {
            FUZZ_CHECK(wanted == (long)(at - start) && frame.bytes == at - start - 5);
            FUZZ_CHECK(!frame.bytes || !memcmp(frame.message, data + start + 5, frame.bytes));
            grpc_frame_next(&frame);
            start = at;
        } else {
            FUZZ_CHECK(used == take);
            FUZZ_CHECK(frame.room <= MAX);
        }
    }
    grpc_frame_finish(&frame);
}

static void read_headers(const uint8_t *data, size_t size)
{
    char message[GRPC_STATUS_MESSAGE_BYTES], again[GRPC_STATUS_MESSAGE_BYTES];
    char encoded[GRPC_STATUS_ENCODED_BYTES];
    uint64_t ms = 0;
    char *copy = fuzz_copy(data, size);
    int status = grpc_status_parse(copy, size);
    FUZZ_CHECK(status >= 0 && status <= 16);
    if (grpc_status_timeout(copy, size, &ms))
        FUZZ_CHECK(size >= 2 && size <= 9 && ms <= 99999999ULL * 3600000);
    grpc_status_decode(copy, size, message, sizeof(message));
    size_t length = grpc_status_encode(message, encoded);
    FUZZ_CHECK(length == strlen(encoded) && length < sizeof(encoded));
    grpc_status_decode(encoded, length, again, sizeof(again));
    FUZZ_CHECK(!strcmp(message, again));
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    read_frames(data + 1, size - 1, data[0] % 64 + 1U);
    read_headers(data + 1, size - 1);
    return 0;
}
