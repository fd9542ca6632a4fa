/* SPDX-License-Identifier: Apache-2.0 */
/* vgpu-controller's file of settings. */
#include "config/config_accepted.h"

#include "base/file.h"
#include "base/log.h"

void config_accepted_check(const char *file)
{
    struct stat status;
    if (file_status_at(file, &status) == 0)
        log_warning("%s is not read; limits come from the environment", file);
}
