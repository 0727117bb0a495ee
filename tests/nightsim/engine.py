"""The night as discrete events: exact processor sharing over worker processes, a bank, a model, people, and a probe.

One process runs at most one core (the GIL). All runnable processes of normal priority share the cores equally; those of
elastic work have the weight `omega` (1.0: no priority, 0.015: nice 19). A small part is lost to switching where there
are more runnable than cores. The controller is outside: each minute the night stops at a `yield` with the probe's
reading in `R`, and goes on with the allowances that it finds in `K`. So the rule that is judged is `beat.balancer`'s
own, and not a copy of it.

One function, which is long: numba compiles a loop whose state is local variables, and nothing else would be as fast.

Not modelled: locks of the database, memory, retries and timeouts, more than one host, processes that die.
"""

from __future__ import annotations

import heapq

import numpy as np
from numba import njit

H = 3600.0
# processes: 0-1 sync, 2-5 AI, 6-11 evals, 12-15 realtime, 16 audit, 17-18 invoices
NP = 19
SY, AI, EV, RT, AU, IN = 0, 2, 6, 12, 16, 17
# event kinds
K_TICK, K_SYNC, K_PAGE, K_RT, K_LLM, K_AUDIT, K_INV, K_AIREL, K_EVREL = range(9)
# modes
M_STATIC, M_DECIDE, M_DRAIN, M_PLAN = range(4)
QC = 8192


@njit(cache=True)
def rates(C, w, nh, nl):
    tot = nh + w * nl
    if tot <= 0:
        return 0.0, 0.0
    sh = C / tot
    if sh >= 1.0:
        rh = 1.0
        rl = min(1.0, (C - nh) / nl) if nl > 0 else 0.0
    else:
        rh = sh
        rl = w * sh
    over = (nh + nl) / C - 1.0
    eff = 1.0 / (1.0 + 0.04 * over) if over > 0 else 1.0
    return rh * eff, rl * eff


@njit(cache=True)
def run(
    C,
    omega,
    mode,
    pp,
    t_audit,
    t_sync,
    k_agg,
    lat_mult,
    e0,
    e1,
    ef,
    pages,
    page_lat,
    ai_init,
    ai_per,
    ai_dur,
    ev_lat,
    rt_arr,
    rt_lat,
    p_fail,
    p_lies,
    cpu_page,
    R,
    K,
    out,
    rt_wait,
):
    # ---- parameters of the policy (see policies.py for names)
    t_ai, t_ev, expires, k_day, open_t = pp[0], pp[1], pp[2], pp[3], pp[4]
    day, dead = pp[5], pp[6]
    CPU_PAGE, CPU_EV0, CPU_EV1 = cpu_page, 0.3, 2.0
    CPU_RT0, CPU_RT1, CPU_RT2 = 0.25, 0.2, 0.3
    POOL, L, KMAX, EMAX = 200, 10, 4, 6
    na = len(pages)
    base = np.zeros(na, np.int64)
    s = 0
    for i in range(na):
        base[i] = s
        s += pages[i]
    done_pg = np.zeros(na, np.int64)
    rem = np.zeros(NP)
    busy = np.zeros(NP, np.bool_)
    cur = np.zeros(NP, np.int64)
    q = np.zeros((NP, QC), np.int64)
    qh = np.zeros(NP, np.int64)
    qt = np.zeros(NP, np.int64)
    lo = np.zeros(NP, np.bool_)
    for p in range(AI, RT):
        lo[p] = True
    nh, nl = 0, 0
    heap = [(0.0, K_TICK, 0)]
    heapq.heappush(heap, (t_sync, K_SYNC, 0))
    heapq.heappush(heap, (t_audit, K_AUDIT, 0))
    heapq.heappush(heap, (7 * H, K_INV, 0))
    if mode == M_STATIC:
        heapq.heappush(heap, (t_ai, K_AIREL, 0))
        heapq.heappush(heap, (t_ev, K_EVREL, 0))
    nrt = len(rt_arr)
    if nrt > 0:
        heapq.heappush(heap, (rt_arr[0], K_RT, 0))
    # sync state
    next_acct, act, infl, accts_done = 0, 0, 0, 0
    cw = np.zeros(QC, np.int64)
    cwh, cwt = 0, 0
    sync_on, sync_end = False, -1.0
    # AI state
    chunked = mode != M_STATIC
    ready, queued, enq_t, running, ai_done, ai_exp, ai_idx = ai_init, 0, 0.0, 0, 0, 0, 0
    k_ai = KMAX if (mode == M_STATIC) else 0
    ai_last, ai_done07 = -1.0, 0
    chunk = np.zeros(NP, np.int64)
    CH = int(pp[15]) if chunked else 1
    # evals
    nev = len(ev_lat)
    ev_ready, ev_q, ev_enq, ev_run, ev_done, ev_exp, ev_idx = nev, 0, 0.0, 0, 0, 0, 0
    k_ev = EMAX if (mode == M_STATIC) else 0
    ev_last, ev_done07 = -1.0, 0
    # LLM
    ll = 0
    lq = np.zeros(QC * 4, np.int64)
    lqh, lqt = 0, 0
    # realtime
    rt_wait[:] = -1.0
    rt_active, rt_started, rt_seen = 0, 0, 0
    rq = np.zeros(QC * 4, np.int64)
    rqh, rqt = 0, 0
    rt_on = np.zeros(4, np.int64)
    rproc = np.zeros(nrt, np.int64)
    recent = np.zeros(64)
    recent_t = np.full(64, -1e9)
    rci = 0
    inv_left, inv_end = 0, -1.0
    hi_int, last_tick = 0.0, 0.0
    t = 0.0
    END = 8 * H
    while True:
        rh, rl = rates(C, omega, nh, nl)
        # next CPU completion
        tb, pb = 1e18, -1
        for p in range(NP):
            if busy[p]:
                r = rl if lo[p] else rh
                x = t + rem[p] / r if r > 0 else 1e18
                if x < tb:
                    tb, pb = x, p
        te = heap[0][0] if len(heap) > 0 else 1e18
        tn = min(tb, te)
        if tn >= END:
            tn = END
        dt = tn - t
        if dt > 0:
            for p in range(NP):
                if busy[p]:
                    rem[p] -= (rl if lo[p] else rh) * dt
            hi_int += nh * dt
        t = tn
        if t >= END:
            break
        if t >= 7 * H and ai_done07 == 0:
            ai_done07 = max(1, ai_done)
            ev_done07 = max(1, ev_done)
        if tb <= te:
            # ---------------- CPU burst done on process pb
            p = pb
            busy[p] = False
            if lo[p]:
                nl -= 1
            else:
                nh -= 1
            c = cur[p]
            if p < AI:  # sync page stored
                done_pg[c] += 1
                if done_pg[c] < pages[c]:
                    cw[cwt % QC] = c
                    cwt += 1
                else:
                    act -= 1
                    accts_done += 1
                    ready += ai_per[c]
                    if accts_done == na:
                        sync_on, sync_end = False, t
            elif p < EV:  # categorisation done
                running -= 1
                ai_done += 1
                ai_last = t
            elif p < RT:  # eval
                if c == 0:  # pre -> LLM
                    cur[p] = -2
                    lq[lqt % (QC * 4)] = -(p + 1)
                    lqt += 1
                else:
                    ev_run -= 1
                    ev_done += 1
                    ev_last = t
                    cur[p] = -1
            elif p < AU:  # realtime burst
                rid, ph = c // 3, c % 3
                if ph < 2:
                    lq[lqt % (QC * 4)] = rid * 2 + ph
                    lqt += 1
                else:
                    rt_on[p - RT] -= 1
                    rt_active -= 1
            elif p >= IN:
                inv_left -= 1
                if inv_left == 0:
                    inv_end = t
            # next item in this process' own FIFO
            if (p < AI or (p >= RT and p < AU)) and qh[p] < qt[p]:
                c2 = q[p, qh[p] % QC]
                qh[p] += 1
                cur[p] = c2
                busy[p] = True
                nh += 1
                if p < AI:
                    rem[p] = CPU_PAGE
                else:
                    ph = c2 % 3
                    rem[p] = CPU_RT0 if ph == 0 else (CPU_RT1 if ph == 1 else CPU_RT2)
        else:
            ev = heapq.heappop(heap)
            kd, a = ev[1], ev[2]
            if kd == K_PAGE:
                infl -= 1
                p = SY + a % 2
                if busy[p]:
                    q[p, qt[p] % QC] = a
                    qt[p] += 1
                else:
                    busy[p] = True
                    cur[p] = a
                    rem[p] = CPU_PAGE
                    nh += 1
            elif kd == K_SYNC:
                sync_on = True
            elif kd == K_RT:
                rq[rqt % (QC * 4)] = a
                rqt += 1
                rt_seen += 1
                if a + 1 < nrt:
                    heapq.heappush(heap, (rt_arr[a + 1], K_RT, a + 1))
            elif kd == K_LLM:
                ll -= 1
                if a < 0:
                    p = -a - 1
                    busy[p] = True
                    cur[p] = 1
                    rem[p] = CPU_EV1
                    nl += 1
                else:
                    rid, ph = a // 2, a % 2
                    p = rproc[rid]
                    c = rid * 3 + ph + 1
                    if busy[p]:
                        q[p, qt[p] % QC] = c
                        qt[p] += 1
                    else:
                        busy[p] = True
                        cur[p] = c
                        rem[p] = CPU_RT1 if ph == 0 else CPU_RT2
                        nh += 1
            elif kd == K_AUDIT:
                busy[AU] = True
                rem[AU] = 900.0
                nh += 1
            elif kd == K_INV:
                for p in range(IN, NP):
                    busy[p] = True
                    rem[p] = 75.0
                    nh += 1
                    inv_left += 1
            elif kd == K_AIREL:
                queued += ready
                ready = 0
                enq_t = t
            elif kd == K_EVREL:
                ev_q += ev_ready
                ev_ready = 0
                ev_enq = t
            elif kd == K_TICK:
                heapq.heappush(heap, (t + 60.0, K_TICK, 0))
                # ------------------------------------------------ probe
                span = max(1.0, t - last_tick)
                hi_c = hi_int / span
                hi_int, last_tick = 0.0, t
                alive = t < p_fail
                if alive:
                    R[0] = (na - accts_done) if sync_on else 0
                    R[1] = rqt - rqh
                    m = 0.0
                    for i in range(64):
                        if recent_t[i] > t - 180 and recent[i] > m:
                            m = recent[i]
                    if rqt > rqh:
                        m = max(m, t - rt_arr[rq[rqh % (QC * 4)]])
                    R[2] = m
                    R[3] = hi_c
                    R[4] = ll + lqt - lqh
                    R[5] = ready + queued
                    R[6] = ev_ready + ev_q
                    R[7] = act
                    R[8] = rt_active
                    R[10] = ai_done
                    R[11] = running
                if alive or p_lies:
                    R[9] = t
                # ------------------------------------------------ controllers
                if mode == M_DECIDE:
                    yield 0
                    k_ai, k_ev = K[0], K[1]
                elif mode == M_DRAIN:  # (g) no controller: always on at idle priority
                    k_ai = KMAX if (t >= open_t and t < day) else (int(k_day) if t >= day else 0)
                    k_ev = EMAX if (t >= max(open_t, pp[7]) and t < dead) else 0
                elif mode == M_PLAN:  # oracle's plans: knows when the sync really runs
                    if t < open_t:
                        k_ai, k_ev = 0, 0
                    elif t >= day:
                        k_ai, k_ev = int(k_day), 0
                    elif sync_on:
                        k_ai, k_ev = int(pp[7]), int(pp[8])
                    else:
                        k_ai, k_ev = int(pp[9]), int(pp[10])
        # ---------------- fill free places
        if sync_on or cwh < cwt:
            while sync_on and act < POOL and next_acct < na:
                cw[cwt % QC] = next_acct
                cwt += 1
                next_acct += 1
                act += 1
            while infl < k_agg and cwh < cwt:
                a = cw[cwh % QC]
                cwh += 1
                f = lat_mult * (ef if (t >= e0 and t < e1) else 1.0)
                heapq.heappush(heap, (t + page_lat[base[a] + done_pg[a]] * f, K_PAGE, a))
                infl += 1
        # realtime pool: 4 processes x 4 threads
        while rqh < rqt:
            b = 0
            for i in range(1, 4):
                if rt_on[i] < rt_on[b]:
                    b = i
            if rt_on[b] >= 4:
                break
            rid = rq[rqh % (QC * 4)]
            rqh += 1
            rt_on[b] += 1
            rt_active += 1
            p = RT + b
            rproc[rid] = p
            if busy[p]:
                q[p, qt[p] % QC] = rid * 3
                qt[p] += 1
            else:
                busy[p] = True
                cur[p] = rid * 3
                rem[p] = CPU_RT0
                nh += 1
        # AI lane
        if queued > 0 and t - enq_t >= expires:
            ai_exp += queued
            queued = 0
        if queued > 0 or (chunked and ready > 0):
            active = 0
            for p in range(AI, EV):
                if busy[p] or chunk[p] > 0:
                    active += 1
            for p in range(AI, EV):
                if busy[p]:
                    continue
                if chunk[p] <= 0:
                    if active >= k_ai:
                        continue
                    chunk[p] = CH
                    active += 1
                if queued > 0:
                    queued -= 1
                elif chunked and ready > 0:
                    ready -= 1
                else:
                    chunk[p] = 0
                    continue
                chunk[p] -= 1
                busy[p] = True
                rem[p] = ai_dur[ai_idx % len(ai_dur)]
                ai_idx += 1
                nl += 1
                running += 1
        # eval lane
        if ev_q > 0 and t - ev_enq >= expires:
            ev_exp += ev_q
            ev_q = 0
        if ev_run < k_ev:
            for p in range(EV, RT):
                if ev_run >= k_ev:
                    break
                if busy[p] or cur[p] > 0 or cur[p] == -2:
                    continue
                if ev_q > 0:
                    ev_q -= 1
                elif chunked and ev_ready > 0:
                    ev_ready -= 1
                else:
                    break
                busy[p] = True
                cur[p] = 0
                rem[p] = CPU_EV0
                nl += 1
                ev_run += 1
        # LLM provider, one FIFO for all
        while ll < L and lqh < lqt:
            c = lq[lqh % (QC * 4)]
            lqh += 1
            ll += 1
            if c < 0:
                p = -c - 1
                cur[p] = -2  # waiting for the model
                heapq.heappush(heap, (t + ev_lat[ev_idx % nev], K_LLM, c))
                ev_idx += 1
            else:
                rid, ph = c // 2, c % 2
                if ph == 0:
                    rt_wait[rid] = t - rt_arr[rid]
                    recent[rci % 64] = rt_wait[rid]
                    recent_t[rci % 64] = t
                    rci += 1
                    rt_started += 1
                heapq.heappush(heap, (t + rt_lat[rid, ph], K_LLM, c))
    for i in range(nrt):
        if rt_wait[i] < 0:
            rt_wait[i] = END - rt_arr[i]
    out[0] = sync_end
    out[1] = ai_last
    out[2] = ai_exp
    out[3] = ai_done07
    out[4] = ai_done
    out[5] = ready + queued
    out[6] = ev_last
    out[7] = ev_exp
    out[8] = ev_done07
    out[9] = ev_done
    out[10] = inv_end
