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
    Mutant("one_tenant", "all tenants share one turn", "placement.c", "tenant_of(queue, request->tenant)", "tenant_of(queue, 1)"),
    Mutant("overtaken", "a large request is overtaken for ever", "placement.c", "        pass->stopped = true;\n", "        ;\n"),
    Mutant("head_of_line", "one that doesn't fit stops all behind it", "placement.c",
           "        pass->now_us - request->since_us >= PLACEMENT_OVERTAKE_US)", "        true)"),
    Mutant("full_for_ever", "what was full once is full for ever", "placement.c",
           "           queue->full.version == placement->candidates.version &&\n", ""),
    Mutant("always_tried", "what is known to be full is searched for again", "placement.c", "    return request->tried && !request->lacks", "    return false && !request->lacks"),
    Mutant("new_not_tried", "a new request isn't tried where a smaller one found none", "placement.c", "    return request->tried && !request->lacks", "    return !request->lacks"),
    Mutant("again_last", "requests that are placed again keep no order", "placement.c", "        insert_by_order(&queue->again, request);", "        TAILQ_INSERT_HEAD(&queue->again, request, waiting_link);"),
    Mutant("again_behind", "requests that are placed again wait behind new ones", "placement.c", "    } else if (turn == PLACEMENT_AGAIN) {", "    } else if (false) {"),
    Mutant("deaf", "a request that lacked a worker doesn't hear of one", "placement.c", "bool over = pass->stopped && !queue->lacking;", "bool over = pass->stopped;"),
    # --- what others may expect
    Mutant("ready_by_role", "ready means that a worker is up", "placement.c", "    return choice.outcome == ROUTE_PLACED || choice.outcome == ROUTE_FULL;", "    return placement->candidates.pools[model].roles[ROLE_DECODE].up > 0;"),
    Mutant("retry_flat", "the time to try again doesn't know the queue", "placement.c", "(queue->count + 1) * span_us / known", "span_us / known"),
]
