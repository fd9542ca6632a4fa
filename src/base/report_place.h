/* SPDX-License-Identifier: Apache-2.0 */
/* Where a process leaves its report for `vgpu doctor -- COMMAND`: in the directory that the
 * variable names, the file PID-START, as its own PID namespace and /proc/self/stat have them. The
 * file has two places for the report, written in turn, so that one is whole whenever its process is
 * killed: the lines of vgpu_report, then "written N", N counting from 1. */
#ifndef VGPU_BASE_REPORT_PLACE_H
#define VGPU_BASE_REPORT_PLACE_H

#define REPORT_DIRECTORY_VARIABLE "VGPU_REPORT_DIR"
#define REPORT_DIRECTORY_BYTES 256
#define REPORT_PLACE_BYTES (48u << 10)
#define REPORT_NAME_FORMAT "%s/%d-%llu"
#define REPORT_LAST_LINE "written "

#endif
