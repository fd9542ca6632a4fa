/* SPDX-License-Identifier: Apache-2.0 */
/* The charge protocol of account.c and slot.c (docs/region.md), for the model checker spin.
 *
 * A process is one thread: those of a process take turns under self.lock (test/region/threads.c).
 * One device, one kind, no imports, a file that stays; two processes, and a third that is dead.
 * Every access to the region is a step of its own. A process may stop before any step for ever,
 * (KILLED) die there, and (CLOSES) lose its descriptor there. scripts/check-model runs it, and the
 * broken variants that must be found.
 *
 * Taken for granted, and so the code's to give:
 * - One order of all steps, the same for all. The code gives it where it matters: the addition to
 *   bytes, the swaps of state and slot_high, and the loads of slot_high, state and bytes in a sum
 *   are sequentially consistent. pending is raised before bytes and lowered after by such
 *   operations, and read before (acquire) and after the load of bytes. A claimer's zeroes lie
 *   before its swap to live. With weaker orders an addition may be unseen when its process sums:
 *   RELAXED.
 * - A process's memory is off the card before its slot's lock is free.
 * - PULLED_APART: a wait outlasts the attempts that run when it begins, and at least one attempt in
 *   the 100 ms of waits meets no other attempt. The clock's low bits make that likely, not certain.
 *
 * Checked, each under the word that stands at its assertion:
 * - over: what the driver holds or was let do for the living never passes the limit. Not promised
 *   for a living process that was taken for dead (APART and CLOSES: its descriptors are closed and
 *   its pid cannot be seen). Until its next call into the account, which nothing bounds, it is
 *   missing in the sums, and others may be granted as much as it holds. That call adds everything
 *   again; from then on nobody is granted anything until the sum is below the limit. A write that
 *   it was about to make goes astray, into the slot's next owner: the last case of check-model.
 * - taken: no process is taken for dead that holds its lock or whose pid can be seen.
 * - lost: at rest each live slot shows what its owner holds, and nothing is pending.
 * - refused: a process that is refused wanted more than was left at some instant of its request, where
 *   all that others ask for counts as granted and what they give back meanwhile as held. The dead
 *   count for nothing. The sum is no snapshot: bytes that one gives back and another takes while it
 *   is made may be counted twice, so what is given back must count here.
 * - both: of two that race for the last bytes one gets them. Not promised for three: one may be
 *   refused for bytes that two others add and take back under its eyes.
 * - No state is without a successor, and (PROGRESS) no run is endless: a request waits for no other
 *   process. */

#ifndef PROCESSES
#define PROCESSES 2
#endif
#ifndef SLOTS
#define SLOTS PROCESSES
#endif
#ifndef LIMIT
#define LIMIT 2
#endif
#ifndef REQUESTS
#define REQUESTS 1 /* of each process */
#endif
#ifndef LARGEST
#define LARGEST 2 /* bytes of a request: 1 to this */
#endif
#ifndef RETRIES
#define RETRIES 1 /* the 100 ms of reserve_waiting; at least 2 where waiting is endless */
#endif
#ifndef KILLED
#define KILLED 0 /* the first that many processes may die at any step */
#endif
#ifndef CLOSES
#define CLOSES 0 /* the first that many processes may lose their descriptor at any step */
#endif
#ifndef OVERTAKE
#define OVERTAKE false /* broken: a slot is taken from a claimer that may live */
#endif
#ifndef ENDLESS
#define ENDLESS false /* broken: who waits, waits for ever */
#endif

#define FREE 0
#define CLAIMING 1
#define LIVE 2
#define STATE(word) ((word) & 3)
#define OWNER(word) ((((word) >> 2) & 15) - 1)
#define WORD(generation, process, state) ((generation) << 6 | (process) + 1 << 2 | (state))
#define NONE 15
#define NOBODY 15

typedef vgpu_slot {
    short word;     /* generation, owner, state */
    short bytes, pending;
    byte lock = NOBODY /* who holds the lock on its byte of the file */
};
vgpu_slot slot[SLOTS];
byte slot_high;

#ifdef APART
#define SEEN_GONE(word) false
#define CANNOT_BE_SEEN true
#else
#define SEEN_GONE(word) (!alive[OWNER(word)])
#define CANNOT_BE_SEEN false
#endif

/* The kernel's and the driver's side. */
bool alive[PROCESSES] = true;
bool dying[PROCESSES];
bool descriptor[PROCESSES] = true;
short held[PROCESSES];    /* on the card */
short granted[PROCESSES]; /* let through to the driver, which has not answered */

#ifdef RELAXED
short unseen[PROCESSES]; /* an addition that nobody else sees yet */
byte unseen_slot[PROCESSES];
#define OWN_UNSEEN(i) + (i == mine -> unseen[p] : 0)
#else
#define OWN_UNSEEN(i)
#endif

/* What only the checks look at. */
byte rested;
bool resting[PROCESSES];
bool missing[PROCESSES];     /* alive, and taken for dead */
bool was_missing[PROCESSES]; /* somebody was, during this one's attempt */
bool in_request[PROCESSES];
bool in_attempt[PROCESSES];
bool in_claim[PROCESSES];
bool has_begun[PROCESSES];
short asked[PROCESSES]; /* by the request that runs */
short freed[PROCESSES]; /* off the card, and not yet given back */
short gone[PROCESSES];  /* given back by others during this one's request */
bool may_refuse[PROCESSES];
short was_refused[PROCESSES];
byte alone = NOBODY; /* the only one that may attempt */
bool outwaited[PROCESSES * PROCESSES];
#define OF_ALL(words) (words 0] || words PROCESSES / 2] || words PROCESSES - 1])

inline note_taken_for_dead(taken)
{
    if
    :: alive[OWNER(taken)] ->
        assert(CANNOT_BE_SEEN); /* taken */
        missing[OWNER(taken)] = true;
        for (g : 0 .. PROCESSES - 1) {
            was_missing[g] = true
        }
    :: else
    fi;
    g = 0
}

inline note_given_back(amount)
{
    for (g : 0 .. PROCESSES - 1) {
        if
        :: g != p && in_request[g] -> gone[g] = gone[g] + (amount)
        :: else
        fi
    }
    g = 0
}

inline note_request_begins()
{
    in_request[p] = true;
    asked[p] = r;
    for (g : 0 .. PROCESSES - 1) {
        total = total + held[g] + granted[g] + asked[g] + freed[g]
    }
    for (g : 0 .. PROCESSES - 1) {
        if
        :: in_request[g] && total + gone[g] > LIMIT -> may_refuse[g] = true
        :: else
        fi
    }
    total = 0;
    g = 0
}

inline note_request_ends()
{
    in_request[p] = false;
    asked[p] = 0;
    gone[p] = 0;
    may_refuse[p] = false
}

inline note_grant()
{
    granted[p] = r;
    note_request_ends();
    for (g : 0 .. PROCESSES - 1) {
        total = total + held[g] + granted[g]
    }
    assert(total <= LIMIT || was_missing[p]); /* over */
    total = 0;
    g = 0
}

inline note_refusal()
{
    assert(may_refuse[p]); /* refused */
    note_given_back(asked[p]);
    was_refused[p] = r;
    note_request_ends()
}

inline note_attempt_begins()
{
    in_attempt[p] = true;
    was_missing[p] = OF_ALL(missing[)
}

inline note_attempt_ends()
{
    in_attempt[p] = false;
#ifdef PULLED_APART
    alone = (alone == p -> NOBODY : alone);
    for (g : 0 .. PROCESSES - 1) {
        outwaited[g * PROCESSES + p] = false
    }
    g = 0
#endif
}

inline note_wait()
{
#ifdef PULLED_APART
    for (g : 0 .. PROCESSES - 1) {
        outwaited[p * PROCESSES + g] = in_attempt[g]
    }
#endif
    g = 0
}

inline close_descriptor(whose)
{
    descriptor[whose] = false;
    for (g : 0 .. SLOTS - 1) {
        if
        :: slot[g].lock == whose -> slot[g].lock = NOBODY
        :: else
        fi
    }
    g = 0
}

inline note_death()
{
    note_given_back(held[p] + granted[p] + asked[p] + freed[p]);
    freed[p] = 0;
    note_request_ends();
    held[p] = 0;
    granted[p] = 0;
    alive[p] = false;
    missing[p] = false;
    note_attempt_ends();
    rested = rested + (resting[p] -> 0 : 1);
    resting[p] = true;
    close_descriptor(p)
}


/* is_dead: a process without its lock is dead where it cannot be seen, and where it is seen to be gone. */
inline judge()
{
    d_step {
        locked = descriptor[p] && slot[i].lock == NOBODY; /* it was seen not to be */
        dead = !descriptor[p] || slot[i].lock == NOBODY
    };
    d_step {
        dead = dead && (CANNOT_BE_SEEN -> locked : SEEN_GONE(w));
        locked = false
    }
}

inline free_if_unchanged()
{
    if
#ifdef REAP_BY_STORE
    :: true ->
#else
    :: slot[i].word == w ->
#endif
        if
        :: STATE(slot[i].word) == LIVE -> note_taken_for_dead(slot[i].word)
        :: else
        fi;
        slot[i].word = (slot[i].word >> 6 << 6) | FREE
    :: else
    fi
}

#define MAY_OVERTAKE(word) (SEEN_GONE(word) || abandoned || OVERTAKE)

/* slot_claim, take_slot and fill_slot_locked. Leaves mine == NONE where no slot was to be had. */
inline claim()
{
    d_step { i = 0; mine = NONE; abandoned = false }
    do
    :: i == SLOTS && !abandoned && mine == NONE ->
        d_step { i = 0; abandoned = true } /* the last resort */
    :: (i == SLOTS && abandoned) || mine != NONE -> break
    :: else ->
        atomic {
            in_claim[p] = true;
            w = slot[i].word;
            if
            :: STATE(w) == FREE -> goto claim_lock
            :: STATE(w) == CLAIMING && MAY_OVERTAKE(w) -> goto claim_lock
            :: STATE(w) == LIVE
            :: else -> goto claim_next
            fi
        };
#ifndef LOCK_LIVE
        judge();
        atomic {
            if
            :: dead -> d_step { dead = false; free_if_unchanged() }
            :: else -> goto claim_next
            fi
        };
#endif
claim_lock:
        atomic {
            locked = false;
            if
            :: !descriptor[p]
            :: descriptor[p] && slot[i].lock == NOBODY -> slot[i].lock = p; locked = true
            :: else -> goto claim_next
            fi
        };
        atomic {
            w = slot[i].word;
            if
            :: STATE(w) == FREE || (STATE(w) == CLAIMING && locked && MAY_OVERTAKE(w))
#ifdef LOCK_LIVE
            :: STATE(w) == LIVE && !CANNOT_BE_SEEN && SEEN_GONE(w)
#endif
            :: else -> goto claim_drop
            fi
        };
        atomic {
            if
            :: slot[i].word == w ->
                if
                :: STATE(w) == LIVE -> note_taken_for_dead(w)
                :: else
                fi;
                w = WORD((w >> 6) + 1, p, CLAIMING);
                slot[i].word = w
            :: else -> goto claim_drop
            fi
        };
        slot[i].bytes = 0;
        slot[i].pending = 0;
        atomic {
            if
            :: slot[i].word == w -> w = WORD(w >> 6, p, LIVE); slot[i].word = w
            :: else -> goto claim_drop
            fi
        };
        d_step {
            if
            :: slot_high <= i -> slot_high = i + 1
            :: else
            fi;
            mine = i; my_word = w
        };
        goto claim_next;
claim_drop:
        atomic {
            if
            :: locked && slot[i].lock == p -> slot[i].lock = NOBODY
            :: else
            fi
        };
claim_next:
        atomic { i++; w = 0; locked = false; in_claim[p] = false }
    od;
    if
    :: mine == NONE
    :: else ->
        slot[mine].pending = own_pending;
        d_step {
            slot[mine].bytes = slot[mine].bytes + own_bytes;
            missing[p] = missing[p] && slot[mine].word != my_word
        }
    fi;
    i = 0
}

/* sum_slots. */
inline sum()
{
    d_step { i = 0; total = 0; others_pending = 0; bound = slot_high }
    do
    :: i == bound -> break
    :: else ->
        if
        :: atomic { STATE(slot[i].word) == LIVE -> skip }
#ifndef PENDING_ONCE
            pending = (i == mine -> 0 : slot[i].pending);
#endif
            b = slot[i].bytes OWN_UNSEEN(i);
            if
            :: i == mine
            :: i != mine -> pending = (slot[i].pending > pending -> slot[i].pending : pending)
            fi;
            pending = (pending < b -> pending : b);
            d_step {
                total = total + b;
                others_pending = others_pending + pending;
                b = 0;
                pending = 0
            }
        :: atomic { STATE(slot[i].word) != LIVE -> skip }
        fi;
        i++
    od;
    atomic { i = 0; bound = 0 }
}

/* slot_reap_dead. */
inline reap()
{
    d_step { i = 0; reaped = false; bound = slot_high }
    do
    :: i == bound -> break
    :: else ->
        atomic {
            w = slot[i].word;
            if
            :: i == mine || STATE(w) != LIVE -> goto reap_next
            :: else
            fi
        };
        atomic {
            if
            :: slot[i].bytes == 0 -> goto reap_next
            :: else
            fi
        };
        judge();
        atomic {
            if
            :: dead -> d_step { dead = false; reaped = true; free_if_unchanged() }
            :: else -> goto reap_next
            fi
        };
#ifdef REAPER_ZEROES
        slot[i].bytes = 0;
#endif
reap_next:
        atomic { i++; w = 0; locked = false }
    od;
    atomic { i = 0; bound = 0 }
}

/* The addition to bytes: seq_cst, or as a relaxed one may look to others. */
inline add()
{
#ifdef RELAXED
    d_step { unseen[p] = r; unseen_slot[p] = at }
#else
    slot[at].bytes = slot[at].bytes + r
#endif
}

/* take_back_locked. */
inline take_back()
{
#ifdef RELAXED
    d_step { slot[at].bytes = slot[at].bytes - (unseen[p] -> 0 : r); unseen[p] = 0 };
#else
    slot[at].bytes = slot[at].bytes - r;
#endif
    d_step {
        slot[at].pending = slot[at].pending - r;
        own_bytes = own_bytes - r;
        own_pending = own_pending - r;
        note_attempt_ends()
    }
}

/* Results of an attempt. */
#ifdef ONLY_IF_REAPED /* broken: what another reaped counts for us still */
#define ONCE_MORE false
#else
#define ONCE_MORE true
#endif

#define FITS 1
#define FULL 2
#define WAIT 3

#define IS_LAST (tries == RETRIES) /* of those that follow a wait */

#define RESERVE 0
#define COMMIT 1
#define RELEASE 2
#define REST 3

proctype process(byte p)
{
    short my_word, own_bytes, own_pending, w, b, pending, total, others_pending;
    byte mine = NONE, at, r, requests, op, result, tries, i, bound, g;
    bool locked, reaped, failed, abandoned, dead, again;

    {
#ifdef ATTACHED
        atomic { claim(); has_begun[p] = true };
#else
        claim();
        has_begun[p] = true;
#endif
ask:
        atomic {
            if
            :: requests == REQUESTS -> op = REST
            :: requests < REQUESTS ->
                d_step { requests++; tries = 0; again = false };
                select(r : 1 .. LARGEST);
                op = RESERVE;
                d_step { note_request_begins() };
                if
                :: own_bytes + r > LIMIT -> goto refuse
                :: else
                fi
            fi
        };
call:
        /* slot_locked */
        atomic {
            if
            :: mine != NONE && slot[mine].word == my_word -> goto have_slot
            :: mine != NONE && slot[mine].word != my_word ->
                slot[mine].lock = (slot[mine].lock == p -> NOBODY : slot[mine].lock)
            :: mine == NONE
            fi
        };
        claim();
have_slot:
        atomic {
            at = mine;
            if
            :: op == REST -> goto rest
            :: op == COMMIT -> goto commit
            :: op == RELEASE -> goto release
            :: op == RESERVE && mine == NONE -> may_refuse[p] = true; goto refuse
            :: else
            fi
        };
        /* try_reserve */
        atomic {
#ifdef PULLED_APART
            if
            :: (again || tries == 0) && (alone == NOBODY || alone == p)
            :: !again && tries != 0 && alone == NOBODY && !OF_ALL(outwaited[p * PROCESSES +) ->
                if
                :: IS_LAST -> !OF_ALL(in_attempt[) -> alone = p
                :: else
                fi
            fi;
#endif
            d_step {
                note_attempt_begins();
                own_bytes = own_bytes + r;
                own_pending = own_pending + r
            }
        };
#ifdef CHECK_THEN_ADD
        sum();
        total = total + r;
        slot[at].pending = slot[at].pending + r;
        add();
#else
        slot[at].pending = slot[at].pending + r;
        add();
        sum();
#endif
        atomic {
            result = (total <= LIMIT -> FITS : (total - others_pending > LIMIT -> FULL : WAIT));
            d_step { total = 0; others_pending = 0 };
            if
            :: result == FITS ->
                d_step { note_grant(); note_attempt_ends() };
                goto driver
            :: else
            fi
        };
        take_back();
        /* try_reserve_locked, reserve_waiting */
        atomic {
            if
            :: again -> goto tried
            :: !again && result == WAIT && tries != 0 && !IS_LAST -> goto tried
            :: else
            fi
        };
        reap();
        atomic {
            if
            :: reaped || ONCE_MORE -> reaped = false; again = true; goto call
            :: else
            fi
        };
tried:
        atomic {
            again = false;
            if
            :: result == WAIT && !IS_LAST ->
                tries = (ENDLESS -> 1 : tries + 1);
                d_step { note_wait() };
                goto call
            :: else
            fi
        };
refuse:
        atomic { note_refusal(); result = 0; r = 0 };
        goto ask;
driver:
        atomic {
#ifdef RELAXED
            unseen[p] == 0;
#endif
            granted[p] = 0;
            if
            :: held[p] = held[p] + r
#ifndef KEEPS
            :: failed = true; freed[p] = r
#endif
            fi;
            op = COMMIT; result = 0;
            goto call
        };
commit:
        atomic {
            own_pending = own_pending - r;
            if
            :: mine != NONE -> slot[at].pending = slot[at].pending - r
            :: else
            fi
        };
        atomic {
            if
            :: failed
            :: !failed -> r = 0; goto ask
#ifndef KEEPS
            :: !failed -> held[p] = held[p] - r; freed[p] = r
#endif
            fi;
            failed = false; op = RELEASE;
            goto call
        };
release:
        atomic {
            own_bytes = own_bytes - r;
            if
            :: mine != NONE -> slot[at].bytes = slot[at].bytes - r
            :: else
            fi;
            d_step { freed[p] = 0; note_given_back(r); r = 0 }
        };
        goto ask;
rest:
        atomic { rested++; resting[p] = true };
end_rest:
        false
    } unless {
        atomic { dying[p]; d_step { note_death() } }
    }
}

#ifdef RELAXED
proctype memory(byte p)
{
end_memory:
    do
    :: d_step {
            unseen[p] != 0;
            slot[unseen_slot[p]].bytes = slot[unseen_slot[p]].bytes + unseen[p];
            unseen[p] = 0
        }
    od
}
#endif

/* Any of those that may be hit is hit at any step, or is not. */
proctype fate()
{
    byte v, g;
    do
    :: v < KILLED -> dying[v] = true; v++
    #ifndef CLOSES_EARLY
    :: v < CLOSES && has_begun[v] && !in_claim[v] -> d_step { close_descriptor(v); v++ }
#else
    :: v < CLOSES -> d_step { close_descriptor(v); v++ }
#endif
    :: v < KILLED || v < CLOSES -> v++
    :: v >= KILLED && v >= CLOSES -> break
    od
}

/* All rest, whatever they still hold. */
proctype witness()
{
    byte s, q;
    short total;
    bool found;
    rested == PROCESSES;
    d_step {
        for (q : 0 .. PROCESSES - 1) {
            total = total + held[q];
            found = !alive[q] || missing[q] || held[q] == 0;
            for (s : 0 .. SLOTS - 1) {
                if
                :: STATE(slot[s].word) == LIVE && OWNER(slot[s].word) == q ->
                    if
                    :: alive[q] ->
                        assert(slot[s].bytes == held[q] && slot[s].pending == 0); /* lost */
                        found = true
                    :: else -> assert(slot[s].lock == NOBODY) /* lost: will be reaped */
                    fi
                :: else
                fi
            }
            assert(found) /* lost */
        }
#ifdef PULLED_APART
        for (q : 0 .. PROCESSES - 1) {
            assert(!was_refused[q] || total + was_refused[q] > LIMIT) /* both */
        }
#endif
        q = 0
    }
}

init
{
    byte q;
    atomic {
#ifdef DEAD_FIRST
        alive[0] = false;
        resting[0] = true;
        rested = 1;
        slot_high = DEAD_FIRST + 1;
        slot[DEAD_FIRST].word = WORD(1, 0, LIVE);
        slot[DEAD_FIRST].bytes = LIMIT;
        q = 1;
#endif
        do
        :: q < PROCESSES ->
            run process(q);
#ifdef RELAXED
            run memory(q);
#endif
            q++
        :: else -> break
        od;
        run fate();
        run witness()
    }
}
