/* SPDX-License-Identifier: Apache-2.0 */
/* Clang's capability annotations under short names; nothing under other compilers. */
#ifndef VGPU_BASE_THREAD_SAFETY_H
#define VGPU_BASE_THREAD_SAFETY_H

#if defined(__clang__)
#define THREAD_SAFETY(x) __attribute__((x))
#else
#define THREAD_SAFETY(x)
#endif

#define CAPABILITY(name) THREAD_SAFETY(capability(name))
#define GUARDED_BY(lock) THREAD_SAFETY(guarded_by(lock))
#define REQUIRES(lock) THREAD_SAFETY(requires_capability(lock))
#define ACQUIRE(lock) THREAD_SAFETY(acquire_capability(lock))
#define TRY_ACQUIRE(lock) THREAD_SAFETY(try_acquire_capability(true, lock))
#define RELEASE(lock) THREAD_SAFETY(release_capability(lock))
#define EXCLUDES(lock) THREAD_SAFETY(locks_excluded(lock))
/* The analysis takes the lock as held after the call, and permits a return while it is. */
#define ASSERT_HELD(lock) THREAD_SAFETY(assert_capability(lock))
#define NO_THREAD_SAFETY_ANALYSIS THREAD_SAFETY(no_thread_safety_analysis)

#endif
