/* SPDX-License-Identifier: Apache-2.0 */
/* glob(3) as it was before glibc 2.27, which also finds links that lead nowhere; no caller here
 * wants those. So a tool that was built on an old system runs on one that is older yet. */
#ifndef VGPU_HOST_GLOB_H
#define VGPU_HOST_GLOB_H

#include <glob.h>

#if defined(__GLIBC__) && defined(__x86_64__)
__asm__(".symver glob, glob@GLIBC_2.2.5");
#elif defined(__GLIBC__) && defined(__aarch64__)
__asm__(".symver glob, glob@GLIBC_2.17");
#endif

#endif
