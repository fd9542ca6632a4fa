/* SPDX-License-Identifier: Apache-2.0 */
/* The terminal that vgpu top has the whole of: taken, given back on every end, and its signals. */
#ifndef VGPU_TOP_TERMINAL_H
#define VGPU_TOP_TERMINAL_H

#include <stdbool.h>
#include <stdint.h>

/* Blocks the signals that top_terminal_signal reads, for the threads made from now on too. Returns
 * the descriptor from which they are read, or -errno. */
int top_terminal_block_signals(void) __attribute__((warn_unused_result));

/* Takes the terminal. False where there is none that can be drawn on: one line said why. */
bool top_terminal_begin(bool wants_colour);

bool top_terminal_has_colour(void);

/* Gives it back as it was. More than once does nothing more. */
void top_terminal_end(void);

/* The next key as top_keys_press has it; false where there is none. Waits for the rest of a
 * sequence at most. */
bool top_terminal_key(uint32_t *ret_key);

/* Reads one signal and does what is due: takes the terminal's new size, stops the process with the
 * terminal as it was before, takes it again. Returns the number of one that is to end the program;
 * else 0. */
int top_terminal_signal(int descriptor);

/* Ends the process by the signal, after the terminal was given back. */
void top_terminal_die(int number) __attribute__((noreturn));

#endif
