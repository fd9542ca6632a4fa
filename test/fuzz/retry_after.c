/* SPDX-License-Identifier: Apache-2.0 */
/* The header Retry-After, and the addresses and texts that come with HTTP. */
#include "net/retry_after.h"

#include "fuzz.h"
#include "kube/base64.h"
#include "kube/url.h"
#include "net/http_address.h"

#include <errno.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size), *decoded = NULL;
    unsigned seconds = 7777;
    int result = retry_after_parse(text, 1795000000, &seconds);
    FUZZ_CHECK(result == 0 || (result == -EINVAL && seconds == 7777));
    FUZZ_CHECK(result || seconds <= RETRY_AFTER_SECONDS_MAX);
    struct sockaddr_storage address;
    socklen_t bytes = 0;
    result = http_address_parse(text, &address, &bytes);
    FUZZ_CHECK(result == -EINVAL || (result == 0 && bytes > 0 && bytes <= sizeof(address)));
    result = base64_decode(text, &decoded);
    FUZZ_CHECK(result == -EINVAL || (result == 0 && strlen(decoded) <= strlen(text) / 4 * 3));
    free(decoded);
    char *escaped = url_escape(text);
    FUZZ_CHECK(strlen(escaped) <= strlen(text) * 3 && !strpbrk(escaped, " &?/=\r\n"));
    free(escaped);
    free(text);
    return 0;
}
