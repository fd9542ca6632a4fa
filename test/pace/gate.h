/* SPDX-License-Identifier: Apache-2.0 */
/* What test/pace/gate.c exports as gate_functions: rm/rm_channels.h of the preloaded library, whose
 * own symbols are hidden. */
#ifndef TEST_HOOK_GATE_H
#define TEST_HOOK_GATE_H

#include "rm/rm_channels.h"

struct gate {
    __typeof__(rm_channels_close) *close;
    __typeof__(rm_channels_open) *open;
    __typeof__(rm_channels_is_closed) *is_closed;
    __typeof__(rm_channels_hold_open) *hold_open;
    __typeof__(rm_channels_release) *release;
    __typeof__(rm_channels_count) *count;
    __typeof__(rm_channels_test) *test;
    __typeof__(rm_channels_state) *state;
    __typeof__(rm_channels_describe) *describe;
    __typeof__(rm_channels_set_timeslice) *set_timeslice;
    __typeof__(rm_channels_reset) *reset;
};

extern const struct gate gate_functions;

#endif
