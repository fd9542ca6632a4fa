/* SPDX-License-Identifier: Apache-2.0 */
/* The vgpu command: one file a sub-command, over the library's own layers. */
#ifndef VGPU_TOOL_TOOL_H
#define VGPU_TOOL_TOOL_H

#include "host/say.h"

/* A sub-command: arguments without `vgpu`; returns the exit status. */
int tool_run(int argc, char **argv);
int tool_set(int argc, char **argv);
int tool_pause(int argc, char **argv);
int tool_resume(int argc, char **argv);
int tool_bench(int argc, char **argv);
int tool_ps(int argc, char **argv);
int tool_region(int argc, char **argv);
int tool_top(int argc, char **argv);

#endif
