/* SPDX-License-Identifier: Apache-2.0 */
/* A load of one or of several processes that begin together. */
#ifndef VGPU_LOAD_PROCESSES_H
#define VGPU_LOAD_PROCESSES_H

#include "load/options.h"

/* Runs what the options say and reports it; returns the exit status. */
int load_processes_run(const struct load_options *options);

#endif
