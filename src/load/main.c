/* SPDX-License-Identifier: Apache-2.0 */
/* vgpu-load: a load generator on the CUDA driver API. */
#include "load/processes.h"
#include "load/stop.h"

int main(int argc, char **argv)
{
    struct load_options options;
    int status;
    if (!load_options_parse(argc, argv, &options, &status))
        return status;
    load_catch_signals();
    return load_processes_run(&options);
}
