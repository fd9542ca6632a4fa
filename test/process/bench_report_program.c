/* SPDX-License-Identifier: Apache-2.0 */
/* bench_report_program DIRECTORY: table and report of its results.json, as vgpu-bench makes them.
 */
#include "bench/report.h"

int main(int argc, char **argv)
{
    return argc == 2 ? bench_report_again(argv[1]) : 2;
}
