/* SPDX-License-Identifier: Apache-2.0 */
/* A kubeconfig that somebody else wrote: one line of error, or a server. */
#include "kube/kubeconfig.h"

#include "fuzz.h"

#include <errno.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kubeconfig config = {0};
    struct error error = {0};
    int result = kubeconfig_parse((const char *)data, size, &config, &error);
    FUZZ_CHECK(result == 0 || result == -EINVAL);
    if (result) {
        FUZZ_CHECK(error.text[0] && !strchr(error.text, '\n') && error.code == EINVAL);
        FUZZ_CHECK(!config.server);
        return 0;
    }
    FUZZ_CHECK(!strncmp(config.server, "http", 4));
    FUZZ_CHECK(!config.token || !strpbrk(config.token, " \r\n"));
    kubeconfig_finish(&config);
    return 0;
}
