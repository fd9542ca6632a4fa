/* SPDX-License-Identifier: Apache-2.0 */
/* A library of libvgpu.so's shape that does nothing: what the loader does for a preload at all. */
char empty_data[70000]; /* more than its file's last page holds, as ours */

void empty_function(void);
void empty_function(void)
{
}

void (*const empty_relocated[1000])(void) = {empty_function};
