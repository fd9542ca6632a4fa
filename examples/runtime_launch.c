/* SPDX-License-Identifier: Apache-2.0 */
/* test_runtime_launch: loads the GPU until it is stopped and reports its throughput once a second.
 * HAMi-core has a program of this name; this one is vgpu-load's full shape. */
#include "load/driver.h"
#include "load/processes.h"
#include "load/stop.h"

int main(int argc, char **argv)
{
    struct load_options options;
    int status;
    load_program = "test_runtime_launch";
    if (argc > 1) {
        load_error("takes no arguments; vgpu-load takes some");
        return LOAD_USAGE;
    }
    if (!load_options_parse(argc, argv, &options, &status))
        return status;
    options.seconds = 0;
    options.report_ms = 1000;
    load_catch_signals();
    return load_processes_run(&options);
}
