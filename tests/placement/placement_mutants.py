"""Mutants that the tests of placement must catch: the real code with one rule left out or reversed."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Mutant:
    name: str
    why: str
    file: str  # in router/planner
    old: str  # occurs exactly once
    new: str


ALL = [
    # --- books
    Mutant("handle_kept", "a handle that is gone still counts at its prefill worker", "placement.c", ".requests = !use->confirmed,", ".requests = 1,"),
    Mutant("prefill_for_ever", "a computed prompt is still work", "placement.c", "use->working && !use->prefilled ? use->prompt_tokens", "use->working ? use->prompt_tokens"),
    Mutant("never_confirmed", "a handoff that is done stays unconfirmed", "placement.c", "use->confirmed ? 0 : use->prompt_tokens", "use->prompt_tokens"),
    Mutant("share_twice", "the old share stays in the books", "placement.c", "    is->work_tokens -= share->work_tokens;\n", ""),
    Mutant("list_keeps", "a request stays in the list of its old worker", "placement.c",
           "        TAILQ_REMOVE(&share->worker->requests, request, decode_link);\n    if (next.worker && share->worker != next.worker)\n        TAILQ_INSERT_TAIL(&next.worker->requests, request, decode_link);\n",
           "        ;\n"),
    # --- misfits, kinds, blocks
    Mutant("misfits_forgotten", "a misfit isn't noted", "candidates.c", "    reader->misfit_count++;\n    reader->kind->misfit_count++;\n", ""),
    Mutant("misfits_outlive", "misfits outlive the prefill worker", "candidates.c", "        drop_misfits_with(decodes->items[i], candidate->is.key);\n", "        ;\n"),
    Mutant("misfit_turns_off", "a decode worker whose prefill workers don't fit waits for them", "candidates.c",
           "return decode->misfit_count == decode->kind->of[ROLE_PREFILL].count;", "return !decode->kind->of[ROLE_PREFILL].count;"),
    Mutant("odd_one_equal", "a decode worker that fits none competes with pairs", "route_policy.c", ".avoided = list->odd + (is->key", ".avoided = (is->key"),
    Mutant("odd_room", "the room is that of a worker that fits none", "route_policy.c", "        return BY_NONE;\n    if (kind->most_ready", "        return REACHED;\n    if (kind->most_ready"),
    Mutant("waits_for_reader", "a handle waits for a reader that is away, though it could begin again", "route_policy.c",
           "seen.misfit || seen.begins ||", "seen.misfit ||"),
    Mutant("block_ignored", "a blocked worker is like others", "route_policy.c", "(s->with_blocked || worker->is.blocked_until_us <= s->request->now_us)", "true"),
    Mutant("block_for_ever", "a block never ends", "route_policy.c", "worker->is.blocked_until_us <= s->request->now_us", "!worker->is.blocked_until_us"),
    Mutant("block_final", "a blocked worker isn't used even if it is the only one", "route_policy.c",
           "    if (choice.outcome == ROUTE_NO_WORKER && s.with_blocked)\n        choice = request_exactly(s);\n", ""),
    Mutant("leaving_candidate", "a leaving worker gets requests", "candidates.c", "    if (is->leaving)\n        leave_kind(pool, candidate);\n    else\n", ""),
    Mutant("stale_room", "the room is remembered over a change", "candidates.c", "    else\n        candidate->kind->stale = true;\n", ""),
    # --- the choice
    Mutant("reports_ignored", "a reported load isn't a lower bound", "route_policy.c", "return work > reported ? work : reported;", "return work;"),
    Mutant("most_work", "the most work wins", "route_policy.c", "return a.work_tokens < b.work_tokens;", "return a.work_tokens > b.work_tokens;"),
    Mutant("idle_counts", "the decode worker that gets no command counts", "route_policy.c", "    if (!idle && (crowded ||", "    if ((crowded ||"),
    Mutant("sample_refuses", "a request that finds no place in the sample is refused", "route_policy.c",
           "        each_kind(&sampled, search_kind);\n        if (sampled.found)\n            return choice_of(&sampled);\n",
           "        each_kind(&sampled, search_kind);\n        each_kind(&sampled, see_kind);\n        return choice_of(&sampled);\n"),
    Mutant("sample_of_one", "the sample is one worker", "route_policy.c", ".count = 4 * root,", ".count = 1,"),
    # --- the queue
    Mutant("no_turns", "a tenant keeps its turn", "placement.c", "    TAILQ_REMOVE(tenants, tenant, link);\n    TAILQ_INSERT_TAIL(tenants, tenant, link);\n", ""),
    Mutant("one_tenant", "all tenants share one turn", "placement.c", "tenant_of(queue, request->tenant, rank)", "tenant_of(queue, 1, rank)"),
    Mutant("overtaken", "a large request is overtaken for ever", "placement.c", "        pass->stopped = true;\n", "        ;\n"),
    Mutant("head_of_line", "one that doesn't fit stops all behind it", "placement.c",
           "        pass->now_us - request->since_us >= PLACEMENT_OVERTAKE_US)", "        true)"),
    Mutant("full_for_ever", "what was full once is full for ever", "placement.c",
           "           queue->full.version == placement->candidates.version &&\n", ""),
    Mutant("always_tried", "what is known to be full is searched for again", "placement.c", "    return request->tried && !request->lacks", "    return false && !request->lacks"),
    Mutant("new_not_tried", "a new request isn't tried where a smaller one found none", "placement.c", "    return request->tried && !request->lacks", "    return !request->lacks"),
    Mutant("again_last", "requests that are placed again keep no order", "placement.c", "        insert(&queue->again, request, false);", "        TAILQ_INSERT_HEAD(&queue->again, request, waiting_link);"),
    Mutant("again_behind", "requests that are placed again wait behind new ones", "placement.c", "    } else if (turn == PLACEMENT_AGAIN) {", "    } else if (false) {"),
    Mutant("deaf", "a request that lacked a worker doesn't hear of one", "placement.c", "bool over = pass->stopped && !queue->lacking;", "bool over = pass->stopped;"),
    # --- the ranks of SLO classes
    Mutant("no_priorities", "all classes have one rank", "placement.c", "[PRIORITY_HIGH] = 0, [PRIORITY_NORMAL] = 1, [PRIORITY_OFFLINE] = 2", "[PRIORITY_HIGH] = 1, [PRIORITY_NORMAL] = 1, [PRIORITY_OFFLINE] = 1"),
    Mutant("no_slack", "a tenant's requests are served by arrival", "placement.c", "        insert(&request->in->requests, request, true);", "        TAILQ_INSERT_TAIL(&request->in->requests, request, waiting_link);"),
    Mutant("slack_is_lifo", "a request with the same slack overtakes", "placement.c", "before->due_us > request->due_us :", "before->due_us >= request->due_us :"),
    Mutant("late_in_time", "late requests keep their place before ones in time", "placement.c", "            retire_late(placement, tenant);\n", "            ;\n"),
    Mutant("late_without_objective", "a request without a TTFT objective is late", "placement.c", "        if (!request->has_ttft)\n            continue;\n", ""),
    Mutant("late_by_slack", "late requests are served by slack, not the oldest first", "placement.c", "insert(&queue->late, request, false);", "insert(&queue->late, request, true);"),
    Mutant("no_floor", "late requests and low ranks starve", "placement.c", "        queue->passed[rank] = queue->ranks[rank] ? queue->passed[rank] + 1 : 0;", "        queue->passed[rank] = 0;"),
    Mutant("floor_saved_up", "a rank saves up its share while none waits in it", "placement.c", "queue->ranks[rank] ? queue->passed[rank] + 1 : 0", "queue->passed[rank] + 1"),
    Mutant("floor_without_end", "a rank that was owed a place is owed all", "placement.c", "    queue->passed[rank] = 0;\n    while", "    while"),
    Mutant("floor_behind", "a rank that is owed a place waits behind the others all the same", "placement.c", "        pass->next = owed(queue);", "        pass->next = NULL;"),
    Mutant("late_lost", "late requests are never placed where others keep coming and none waits", "placement.c", "        pass->next = TAILQ_FIRST(&queue->late);", "        pass->next = NULL;"),
    Mutant("idle_is_pace", "the time in which no request waited counts as pace", "placement.c", "queue->backlog_us = queue->count ? now_us : 0;", "queue->backlog_us = now_us;"),
    Mutant("wait_of_all", "requests of later ranks are waited for", "placement.c", "        before -= queue->ranks[later];\n", "        ;\n"),
    Mutant("wait_without_turns", "a tenant waits for all of the other's requests", "placement.c", "if (tenants * request->in->count < turns)", "if (false)"),
    # --- what others may expect
    Mutant("ready_by_role", "ready means that a worker is up", "placement.c", "    return choice.outcome == ROUTE_PLACED || choice.outcome == ROUTE_FULL;", "    return placement->candidates.pools[model].roles[ROLE_DECODE].up > 0;"),
    Mutant("retry_flat", "the time to try again doesn't know the queue", "placement.c", "(queue->count + 1) * span_us / known", "span_us / known"),
    # --- calibration
    Mutant("never_forgets", "what was long ago counts as much as now", "calibration.c", "1 - 1.0 / CALIBRATION_MAP_REQUESTS", "1"),
    Mutant("error_never_forgets", "an error of long ago counts as much as one now", "calibration.c", "1 - 1.0 / CALIBRATION_ERROR_REQUESTS", "1"),
    Mutant("no_map", "a policy's own P is used", "calibration.c", "return c->requests ? c->map[map_bin(raw)] : raw;", "return raw;"),
    Mutant("map_of_nothing", "the map of no request is used", "calibration.c", "return c->requests ? c->map[map_bin(raw)] : raw;", "return c->map[map_bin(raw)];"),
    Mutant("not_monotone", "violators aren't pooled", "calibration.c", "while (count > 1 && pools", "while (count > 99 && pools"),
    Mutant("strong_prior", "bins begin with many requests that came as predicted", "calibration.c", "#define PRIOR_REQUESTS 0.2", "#define PRIOR_REQUESTS 20.0"),
    Mutant("even_bins", "raw P are told apart only in equal steps", "calibration.c", "return bin_of((log(p / (1 - p)) / MOST_ODDS + 1) / 2, CALIBRATION_MAP_BINS);", "return bin_of(p, CALIBRATION_MAP_BINS);"),
    Mutant("few_are_enough", "a calibration of few requests is good", "calibration.c", "c->requests >= CALIBRATION_LEAST &&", "c->requests &&"),
    Mutant("any_error_is_good", "a calibration is good whatever its error", "calibration.c", "error_of(c, &chance) <= CALIBRATION_GOOD + chance", "error_of(c, &chance) <= 1"),
    Mutant("chance_is_error", "what chance explains counts as an error", "calibration.c", "<= CALIBRATION_GOOD + chance", "<= CALIBRATION_GOOD"),
    # --- admission
    Mutant("rejects_without_objective", "a class without objectives is judged", "admission.c", "    if (!of->has_objective)\n        return ADMISSION_TAKEN;\n", ""),
    Mutant("rejects_uncalibrated", "a request is rejected on predictions that nothing is known of", "admission.c", " || !calibration_is_good(calibration))", ")"),
    Mutant("rejects_raw", "the policy's own P decides", "admission.c", "used <= ADMISSION_BOUND", "raw <= ADMISSION_BOUND"),
    Mutant("hard_start", "all requests beyond the bound are rejected at once", "admission.c", "if (rng_unit(rng) < of->share) {", "if (rng_unit(rng) < ADMISSION_MOST) {"),
    Mutant("none_let_through", "no request is let through any more", "admission.c", "of->share = ADMISSION_MOST;", "of->share = 1.01;"),
    Mutant("let_through_and_rejected", "a request that was let through is judged again", "admission.c", "request->let_through || used", "used"),
    Mutant("learns_nothing", "rejections that were wrong change nothing", "admission.c", ": -ADMISSION_BACK * of->share", ": 0"),
    Mutant("last_prediction", "the last prediction calibrates", "admission.c", "if (!request->at[stage].known) {", "if (true) {"),
    Mutant("no_jitter", "all rejected clients come back together", "admission.c", "return us + (uint64_t)(rng_unit(rng) * 0.5 * (double)us);", "return us + 0 * rng_next(rng);"),
    # --- decisions
    Mutant("winner_lost", "a choice that won isn't kept", "decision_log.c", "    if (at == decision->count) {", "    if (false) {"),
    Mutant("worst_kept", "the first alternatives are kept, not the best", "decision_log.c", "    if (at == DECISION_MAX_ALTERNATIVES)\n        return at;", "    if (decision->count == DECISION_MAX_ALTERNATIVES)\n        return at;"),
    Mutant("tie_not_told", "equal totals look like a win", "decision_log.c", "            decision->why = DECISION_TIE;", "            ;"),
]
