"""What the random schedules must catch: the real code with one rule left out or turned around, and the invariants that may break then."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Mutant:
    name: str
    why: str
    edits: tuple  # of (file in common/engine/sched, old text, new text); the old text occurs exactly once
    breaks: frozenset


def mutant(name, why, breaks, *edits):
    return Mutant(name, why, edits, frozenset(breaks.split()))


ALL = [
    mutant("overtaken", "a reservation holds nobody back", "order",
           ("admission.c", "        if (has_reservation(s, sequence))\n            break;\n", "")),
    mutant("head_of_line", "one that doesn't fit stops all behind it", "room",
           ("admission.c", "        if (has_reservation(s, sequence))\n            break;\n", "        break;\n")),
    mutant("never_alone", "who can't fit even alone is let in", "ends",
           ("admission.c", "    if (need > s->config.block_count)\n", "    if (need > s->config.block_count + 1)\n")),
    mutant("preempted_last", "who was preempted waits among the new ones", "order",
           ("admission.c", "    if (sequence->preempted)\n        return rank << POLICY_RANK_BITS;\n", "")),
    mutant("offline_first", "offline takes blocks while others wait", "order",
           ("admission.c", "if (sequence->class_index == offline && s->online_waits)", "if (false && offline)")),
    mutant("nobody_protected", "the oldest can be a victim", "oldest",
           ("preemption.c", "                sequence != preemption_protected(s) && !sequence->arriving)", "                !sequence->arriving)")),
    mutant("oldest_gives", "the oldest victim first", "victim",
           ("preemption.c", "s->by_arrival[--s->victim_at];", "s->by_arrival[s->count - s->victim_at--];")),
    mutant("any_class_gives", "the newest first, of whatever class", "victim",
           ("preemption.c", "sequence->class_index == s->victim_class && scheduler_runs(sequence)", "scheduler_runs(sequence)")),
    mutant("newest_protected", "the newest is protected", "oldest victim",
           ("preemption.c", "return !b || a->class_index < b->class_index;", "return !b || a->class_index <= b->class_index;")),
    mutant("slots_at_once", "a slot is free before it was read", "content blocks assert",
           ("preemption.c", "    sequence->slot_count = 0;\n    sequence->arriving = true;\n",
            "    for (uint32_t i = 0; i < sequence->slot_count; i++)\n        s->slots[s->slot_count++] = s->swap_ins.list[first + i].from;\n"
            "    sequence->slot_count = 0;\n    sequence->arriving = true;\n"),
           ("preemption.c", "        s->slots[s->slot_count++] = s->plan_swap_ins.list[i].from;\n", "        ;\n")),
    mutant("source_let_go", "what is to be copied isn't held", "content blocks assert",
           ("fork.c", "    kv_blocks_share(s->blocks, &parent->blocks[shared], 1, KV_HOLD_USED); /* until it is copied */\n", ""),
           ("preemption.c", "        kv_blocks_give(s->blocks, &s->plan_copies.list[i].from, 1, KV_HOLD_USED);\n", "        ;\n"),
           ("preemption.c", "            kv_blocks_give(s->blocks, &move.from, 1, KV_HOLD_USED);\n", "            ;\n")),
    mutant("copy_left", "a copy for one that is gone is made", "content blocks assert write",
           ("preemption.c", "    forget_moves(s, &s->copies, sequence, true);\n", "")),
    mutant("not_copied", "a partial block isn't copied", "content",
           ("fork.c", "    if (rows % per == 0)\n        return;\n", "    if (rows % per != 1)\n        return;\n")),
    mutant("partial_shared", "the block of the last row is shared, too", "write content assert",
           ("fork.c", "uint32_t rows = child->prompt_count - 1, per = s->config.block_tokens, shared = rows / per;",
            "uint32_t rows = child->prompt_count - 1, per = s->config.block_tokens, shared = child->prompt_count / per;")),
    mutant("drop_keeps_rows", "dropped rows count as computed", "content budget assert",
           ("preemption.c", "    victim->computed = 0;\n", "")),
    mutant("drop_keeps_prompt", "what was drawn isn't part of the prompt to compute again", "content budget assert",
           ("preemption.c", "    victim->prompt_count = victim->token_count;\n", "")),
    mutant("drop_loses_count", "what was drawn isn't counted as drawn", "content budget assert",
           ("preemption.c", "    victim->emitted_count += victim->token_count - victim->prompt_count;\n", "")),
    mutant("prompts_first", "prompts take the places of decodes", "decodes oldest",
           ("batch_plan.c", "    add_decodes(&batch, &batch.groups[DECODES]);\n    add_prompts(&batch, &batch.groups[PROMPTS]);\n",
            "    add_prompts(&batch, &batch.groups[PROMPTS]);\n    add_decodes(&batch, &batch.groups[DECODES]);\n")),
    mutant("new_first", "fcfs: new prompts beside those that were begun", "decodes",
           ("policy.c", "    return sequence->computed == 0;\n", "    return 0;\n")),
    mutant("offline_decodes_first", "decodes of offline before prompts of all others", "order",
           ("batch_plan.c", "    add_prompts(&batch, &batch.groups[PROMPTS]);\n    add_decodes(&batch, &batch.groups[OFFLINE + DECODES]);\n",
            "    add_decodes(&batch, &batch.groups[OFFLINE + DECODES]);\n    add_prompts(&batch, &batch.groups[PROMPTS]);\n")),
    mutant("offline_decodes", "decodes of offline among all others", "decodes order oldest",
           ("batch_plan.c", "        if (sequence->class_index == offline_class)\n            group += OFFLINE;\n",
            "        if (sequence->class_index == offline_class && !decodes)\n            group += OFFLINE;\n")),
    mutant("classless_rows", "the policy orders rows of all classes", "order",
           ("batch_plan.c", "(uint64_t)sequence->class_index << POLICY_RANK_BITS |", "(uint64_t)0 |")),
    mutant("no_chunk", "a prompt takes what it needs", "budget",
           ("batch_plan.c", "        if (rows > batch->prompt_rows_left)\n            rows = batch->prompt_rows_left;\n        batch->prompt_rows_left -= rows;\n", "")),
    mutant("no_rows_limit", "rows of a step aren't limited", "budget",
           ("batch_plan.c", "        if (rows > batch->rows_left)\n            rows = batch->rows_left;\n", "")),
    mutant("srpf_starves", "short prompts always first", "starve",
           ("policy.c", ".key = srpf_key, .age = srpf_age}", ".key = srpf_key}")),
    mutant("mlfq_starves", "nobody comes back to the first queue", "starve",
           ("policy.c", ".ran = mlfq_ran, .age = mlfq_age}", ".ran = mlfq_ran}")),
    mutant("stalled_takes_place", "who has no block keeps its place in the batch", "ends decodes",
           ("batch_plan.c", " || sequence->stalled ||", " ||"),
           ("scheduler.c", "        growth_mark_stalled(s, true);\n        plan_parts(s);\n", "        s->plan.part_count = 0;\n")),
    mutant("sleeps", "freed blocks wake nobody", "ends",
           ("preemption.c", "    s->plan.freed = true;\n", "")),
    mutant("slots_lost", "who ends in host memory keeps its slots", "blocks",
           ("preemption.c", "    for (uint32_t i = 0; i < sequence->slot_count; i++)\n        s->slots[s->slot_count++] = sequence->blocks[i];\n", "")),
    mutant("cached_too_early", "a block is remembered before its last row", "write content assert",
           ("reuse.c", "(sequence->chain.length + 1) * per <= sequence->computed)", "(sequence->chain.length + 1) * per <= sequence->computed + 1)")),
    mutant("known_leaks", "a block is kept beside the one that is known", "blocks",
           ("reuse.c", "        kv_blocks_give(s->blocks, block, 1, sequence->hold);\n", "")),
    mutant("no_growth", "a row without a block", "write content assert",
           ("growth.c", "(uint64_t)sequence->computed + part->row_count;", "(uint64_t)sequence->computed;")),
    mutant("swap_first_row", "the first block isn't swapped", "content",
           ("preemption.c", "    for (uint32_t i = 0; i < blocks; i++) {\n        uint32_t slot = s->slots[--s->slot_count];\n        add_move(&s->plan_swap_outs, victim->blocks[i], slot, victim);",
            "    for (uint32_t i = 0; i < blocks; i++) {\n        uint32_t slot = s->slots[--s->slot_count];\n        if (i)\n            add_move(&s->plan_swap_outs, victim->blocks[i], slot, victim);")),
]
