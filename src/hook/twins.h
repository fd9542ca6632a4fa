/* SPDX-License-Identifier: Apache-2.0 */
/* Both hooks of each function that the driver exports twice: the plain one, to which stream 0 is
 * the legacy default stream, and its twin, to which it is the calling thread's own. The twin's name
 * ends in _ptsz, or in _ptds where the function takes no stream.
 *
 * A list of hooks (hook/cuda_*.def) has the body for both. What includes this defines TWINS as the
 * list's name; the list is then read twice, with
 *   PTSZ(name), PTDS(name)   the name, with the twin's ending the second time
 *   STREAM_ZERO              what stream 0 means (enum stream_zero)
 * A hook is CUresult PTSZ(hook_<name>)(...), and the driver's own function cuda.PTSZ(<name>). Each
 * needs its row in driver/cuda.def, as any hook does. */
#include "pace/capture.h"

#define STREAM_ZERO STREAM_ZERO_LEGACY
#define PTSZ(name) name
#define PTDS(name) name
#include TWINS
#undef STREAM_ZERO
#undef PTSZ
#undef PTDS

#define STREAM_ZERO STREAM_ZERO_PER_THREAD
#define PTSZ(name) name##_ptsz
#define PTDS(name) name##_ptds
#include TWINS
#undef STREAM_ZERO
#undef PTSZ
#undef PTDS
#undef TWINS
