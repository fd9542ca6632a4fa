/* SPDX-License-Identifier: Apache-2.0 */
/* What libvgpu.so knows of the process that it lives in, for tools: `vgpu doctor` is one. The only
 * function that it exports beside the driver's own names and its doors.
 *
 * Find it with dlsym(RTLD_DEFAULT, "vgpu_report"); NULL: this library is not in the process.
 * docs/doctor.md lists the lines. */
#ifndef VGPU_REPORT_H
#define VGPU_REPORT_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The first line's value. Raised when a line changes its meaning; lines may be added. */
#define VGPU_REPORT_VERSION 1

enum vgpu_report_flags {
    /* Tries the channel gate on devices where this process has a context and did not try it yet:
     * takes its channels off the GPU and lets them on again, about a millisecond. */
    VGPU_REPORT_TEST_GATE = 1,
};

/* Writes lines "NAME VALUE\n" on this process's state, UTF-8 and terminated; a value contains no
 * control character. A NAME is lower-case words with "." between them, and those that begin with
 * "device.N." are of the container's N-th device as the process met it. Makes the process a member
 * of its container as its first CUDA call would; calls no function of the driver. Returns how long
 * the whole report is, as snprintf does; what does not fit is left out from the first line on that
 * does not fit whole. `text` may be NULL where `bytes` is 0. Any thread; takes some microseconds
 * and some file locks. Each line is there in each report, but for those of devices that are not
 * met. */
int vgpu_report(char *text, size_t bytes, unsigned flags);

typedef int vgpu_report_function(char *text, size_t bytes, unsigned flags);

#ifdef __cplusplus
}
#endif

#endif
