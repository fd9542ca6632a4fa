/* SPDX-License-Identifier: Apache-2.0 */
/* The scanner of the images that programs give to the driver. */
#include "hook/image.h"

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    uint64_t bytes = image_device_bytes(text);
    FUZZ_CHECK(image_device_bytes(text) == bytes);
    free(text);
    return 0;
}
