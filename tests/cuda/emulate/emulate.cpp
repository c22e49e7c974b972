#include "tests/cuda/emulate/emulate.h"

#include "tests/cuda/emulate/state.h"

#include <cmath>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <sys/mman.h>

namespace emulated
{

machine emu;

struct kernel {
    size_t parameter_bytes;
    void (*run)(const void *);
};
static std::map<std::string, kernel> &known_kernels()
{
    static std::map<std::string, kernel> all;
    return all;
}
registration::registration(const char *name, size_t parameter_bytes, void (*run)(const void *))
{
    known_kernels()[name] = {parameter_bytes, run};
}

/* --- fibers --- */

extern "C" void emulate_switch(void **save, void *load);
#if defined(__x86_64__)
asm(".text\n.globl emulate_switch\n.type emulate_switch,@function\nemulate_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n"
    ".size emulate_switch,.-emulate_switch\n.section .note.GNU-stack,\"\",@progbits\n.text\n");
#else
#error "the emulator switches fibers on x86-64 only"
#endif

static const size_t STACK_BYTES = 128 << 10;

static void leave()
{
    emulate_switch(&emu.current->stack_pointer, emu.scheduler);
}

static void begin_fiber()
{
    emu.entry(emu.parameters);
    if (emu.early && !emu.current->has_waited)
        fail("the thread ends without wait_previous_kernel");
    if (!emu.current->copies.empty())
        fail("the thread ends with cp.async under way");
    emu.current->is_done = true;
    leave();
    abort();
}

static void prepare(fiber &f)
{
    if (!f.stack) {
        void *memory = mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED)
            abort();
        f.stack = static_cast<char *>(memory);
        mprotect(f.stack, 4096, PROT_NONE);
    }
    void **top = reinterpret_cast<void **>(f.stack + STACK_BYTES - 64);
    *--top = nullptr; /* where begin_fiber would return to */
    *--top = reinterpret_cast<void *>(&begin_fiber);
    for (int i = 0; i < 6; i++)
        *--top = nullptr;
    f.stack_pointer = top;
}

void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(emu.message, sizeof emu.message, format, arguments);
    va_end(arguments);
    emu.failed = true;
    leave();
    abort();
}

uint32_t draw(uint32_t bound)
{
    uint64_t z = emu.random += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return uint32_t((z ^ (z >> 31)) >> 32) % bound;
}

/* A kernel that touches memory it mustn't fails its launch: the handler goes on in the scheduler. */
static void on_fault(int, siginfo_t *info, void *)
{
    snprintf(emu.message, sizeof emu.message, "touches memory outside its buffers, at %p",
             info->si_addr);
    emu.failed = true;
    leave();
    abort();
}
/* Takes faults during a launch. */
struct fault_guard {
    struct sigaction before[2];
    stack_t stack_before;

    fault_guard()
    {
        static char stack[64 << 10];
        stack_t mine = {};
        mine.ss_sp = stack;
        mine.ss_size = sizeof stack;
        sigaltstack(&mine, &stack_before);
        struct sigaction action = {};
        action.sa_sigaction = on_fault;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
        sigaction(SIGSEGV, &action, &before[0]);
        sigaction(SIGBUS, &action, &before[1]);
    }
    ~fault_guard()
    {
        sigaction(SIGSEGV, &before[0], nullptr);
        sigaction(SIGBUS, &before[1], nullptr);
        sigaltstack(&stack_before, nullptr);
    }
};

static bool is_ready(const fiber &f)
{
    return !f.is_done && (!f.word || *f.word != f.value);
}

/* Goes to another lane of the warp that is ready, or to the scheduler. */
void wait_while(const uint32_t *word, uint32_t value, const char *what)
{
    if (*word != value)
        return;
    fiber *f = emu.current;
    f->word = word;
    f->value = value;
    f->waits_for = what;
    fiber *first = f - f->thread.x % 32;
    do {
        fiber *next = nullptr;
        for (uint32_t i = 1; i < 32 && !next; i++) {
            fiber *other = first + (f->thread.x + i) % 32;
            if (is_ready(*other))
                next = other;
        }
        if (next) {
            emu.current = next;
            emulate_switch(&f->stack_pointer, next->stack_pointer);
        } else
            leave();
        /* whoever came back here has set emu.current */
    } while (*word == value);
    f->word = nullptr;
    f->waits_for = "";
}

void gather(const char *operation, void *arguments, void (*together)(warp &))
{
    warp &w = my_warp();
    if (w.arrived && w.operation != operation && strcmp(w.operation, operation) != 0)
        fail("lanes of a warp part: one is at %s, others at %s", operation, w.operation);
    w.operation = operation;
    w.lane[emu.current->thread.x % 32] = arguments;
    uint32_t generation = w.generation;
    if (++w.arrived < 32)
        return wait_while(&w.generation, generation, operation);
    together(w);
    w.arrived = 0;
    w.generation++;
}

void meet(named_barrier &barrier, uint32_t count, bool waits, const char *what)
{
    uint32_t generation = barrier.generation;
    if (++barrier.arrived == count) {
        barrier.arrived = 0;
        barrier.generation++;
    } else if (barrier.arrived > count)
        fail("%s: more arrivals than %u", what, count);
    else if (waits)
        wait_while(&barrier.generation, generation, what);
}

uint8_t *shared_at(uint32_t address, uint32_t bytes, int block)
{
    if (address < SHARED_BASE || address + bytes > SHARED_BASE + emu.shared_bytes)
        fail("shared memory: %u bytes at %d, outside its %u", bytes,
             int(address) - int(SHARED_BASE), emu.shared_bytes);
    return emu.blocks[block < 0 ? emu.current->block : uint32_t(block)].shared + address -
           SHARED_BASE;
}

mbarrier &mbarrier_at(uint32_t address, int block)
{
    shared_at(address, 8, block);
    if (address % 8)
        fail("an mbarrier at %u isn't aligned", address - SHARED_BASE);
    struct block &b = emu.blocks[block < 0 ? emu.current->block : uint32_t(block)];
    return b.mbarriers[(address - SHARED_BASE) / 8];
}

bool is_running(uint32_t rank)
{
    for (uint32_t i = 0; i < emu.threads; i++)
        if (!emu.fibers[rank * emu.threads + i].is_done)
            return true;
    return false;
}

mbarrier &mbarrier_of(uint32_t address, uint32_t rank)
{
    if (rank >= emu.cluster_size)
        fail("block %u of a cluster of %u", rank, emu.cluster_size);
    if (!is_running(rank))
        fail("block %u of the cluster has ended", rank);
    mbarrier &b = mbarrier_at(address, int(rank));
    if (rank != emu.current->block && (!b.is_set_up || b.set_up_in == emu.cluster.generation))
        fail(
            "no barrier of the cluster lies between the set-up of an mbarrier of block %u and here",
            rank);
    return b;
}

void note(const char *mistake)
{
    snprintf(emu.message, sizeof emu.message, "%s", mistake);
    emu.failed = true;
}

void settle(mbarrier &barrier)
{
    if (barrier.pending == 0 && barrier.bytes == 0) {
        barrier.phase ^= 1;
        barrier.pending = barrier.expected;
    }
}

void arrive(mbarrier &barrier)
{
    if (!barrier.is_set_up)
        fail("an mbarrier is used before its set-up");
    if (--barrier.pending < 0)
        fail("more arrivals at an mbarrier than %d", barrier.expected);
    settle(barrier);
}

/* Columns side by side, for the compiler's vectors. */
__attribute__((target_clones("avx2", "default"))) void
tensor_steps(float (&sums)[8], const float (&row)[16], const float (&columns)[16][8])
{
    float products[16][8], most[8], up[8], plain[8];
    int32_t total[8], infinite[8], any = 0;
    for (int j = 0; j < 8; j++) {
        most[j] = fabsf(sums[j]);
        infinite[j] = !(most[j] < INFINITY);
    }
    for (int k = 0; k < 16; k++)
        for (int j = 0; j < 8; j++) {
            products[k][j] = row[k] * columns[k][j];
            float size = fabsf(products[k][j]);
            infinite[j] |= !(size < INFINITY);
            most[j] = size > most[j] ? size : most[j];
        }
    for (int j = 0; j < 8; j++)
        any |= infinite[j];
    for (int j = 0; any && j < 8; j++) {
        if (!infinite[j])
            continue;
        plain[j] = sums[j];
        for (int k = 0; k < 16; k++) {
            plain[j] += products[k][j];
            products[k][j] = 0;
        }
        sums[j] = most[j] = 0;
    }
    for (int j = 0; j < 8; j++) {
        int32_t bits;
        memcpy(&bits, &most[j], 4);
        int32_t exponent = (bits >> 23 < 26 ? 26 : bits >> 23) - 127; /* of the greatest term */
        bits = (25 - exponent > 127 ? 254 : 25 - exponent + 127) << 23;
        memcpy(&up[j], &bits, 4);
        total[j] = int32_t(sums[j] * up[j]);
    }
    for (int k = 0; k < 16; k++)
        for (int j = 0; j < 8; j++)
            total[j] += int32_t(products[k][j] * up[j]);
    for (int j = 0; j < 8; j++) { /* towards zero, to the 24 bits of a float */
        int32_t size = total[j] < 0 ? -total[j] : total[j], bits;
        float cut = float(size);
        memcpy(&bits, &cut, 4);
        bits -= int32_t(cut) > size;
        memcpy(&cut, &bits, 4);
        sums[j] = (total[j] < 0 ? -1.0f : 1.0f) * cut / up[j];
    }
    for (int j = 0; any && j < 8; j++)
        if (infinite[j])
            sums[j] = plain[j];
}

void run_products(warp &w, uint32_t pending)
{
    size_t i = 0;
    for (; i < w.products.size() && w.products[i].group + pending < w.group; i++)
        w.products[i].run();
    w.products.erase(w.products.begin(), w.products.begin() + ptrdiff_t(i));
}

void wait_for_kernel_ahead()
{
    emu.current->has_waited = true;
    wait_while(&emu.ahead_is_done, 0, "the kernel ahead");
}

/* --- the scheduler --- */

static void set_up(const cuda_launch *launch, uint32_t first)
{
    std::vector<uint8_t> &memory = emu.memory;
    emu.cluster = {};
    emu.bulk.clear();
    emu.blocks.resize(launch->cluster);
    memory.resize(size_t(launch->cluster) * (launch->shared_bytes + 2048));
    memset(memory.data(), 0xff, memory.size());
    for (uint32_t b = 0; b < launch->cluster; b++) {
        block &k = emu.blocks[b];
        uint32_t at = first + b;
        k.at = {at % emu.grid.x, at / emu.grid.x % emu.grid.y, at / emu.grid.x / emu.grid.y};
        uintptr_t base =
            reinterpret_cast<uintptr_t>(memory.data()) + size_t(b) * (launch->shared_bytes + 2048);
        k.shared = reinterpret_cast<uint8_t *>((base + 1023) / 1024 * 1024);
        k.mbarriers.assign(launch->shared_bytes / 8 + 1, {});
        memset(k.named, 0, sizeof k.named);
        k.warps.assign(launch->threads / 32, {});
        k.lets_next = false;
    }
    uint32_t count = launch->cluster * launch->threads;
    if (emu.fibers.size() < count)
        emu.fibers.resize(count);
    for (uint32_t i = 0; i < count; i++) {
        fiber &f = emu.fibers[i];
        char *stack = f.stack;
        f = {};
        f.stack = stack;
        f.block = i / launch->threads;
        f.thread = {i % launch->threads, 0, 0};
        f.waits_for = "";
        prepare(f);
    }
}

static void tell_deadlock(char *text, size_t bytes, uint32_t count)
{
    std::map<std::string, uint32_t> waiting;
    for (uint32_t i = 0; i < count; i++)
        if (!emu.fibers[i].is_done)
            waiting[std::string(emu.fibers[i].waits_for) + " in warp " +
                    std::to_string(emu.fibers[i].thread.x / 32)]++;
    size_t used = size_t(snprintf(text, bytes, "deadlock:"));
    for (auto &one : waiting)
        if (used < bytes)
            used += size_t(snprintf(text + used, bytes - used, " %u threads wait for %s;",
                                    one.second, one.first.c_str()));
}

/* Runs each lane of the warp that is ready. Returns whether there was one. */
static bool run_warp(fiber *lanes)
{
    bool ran = false;
    for (uint32_t i = 0; i < 32 && !emu.failed; i++) {
        if (!is_ready(lanes[i]))
            continue;
        emu.current = &lanes[i];
        emulate_switch(&emu.scheduler, lanes[i].stack_pointer);
        ran = true;
    }
    return ran;
}

static bool land_one()
{
    if (emu.bulk.empty())
        return false;
    size_t i = draw(uint32_t(emu.bulk.size()));
    bulk_copy landing = std::move(emu.bulk[i]);
    emu.bulk.erase(emu.bulk.begin() + ptrdiff_t(i));
    landing.land();
    return true;
}

/* Runs the blocks under way to their end. If the kernel ahead isn't done: until no thread goes on,
 * since all wait for it or for one that does. Copies may be under way then. */
static void run_cluster(uint32_t count)
{
    uint32_t warps = count / 32, idle = 0;
    bool stops = !emu.ahead_is_done;
    std::vector<uint32_t> order(warps);
    for (uint32_t i = 0; i < warps; i++)
        order[i] = i;
    while (warps && !emu.failed) {
        bool moved = false;
        for (uint32_t i = warps; i > 1; i--)
            std::swap(order[i - 1], order[draw(i)]);
        for (uint32_t i = 0; i < warps && !emu.failed; i++) {
            /* now and then a warp stands still for a round */
            if (warps > 1 && draw(4) == 0)
                continue;
            for (uint32_t turns = 1 + draw(4); turns-- && run_warp(&emu.fibers[order[i] * 32]);)
                moved = true;
        }
        emu.current = &emu.fibers[0];
        while (draw(2) && land_one())
            moved = true;
        for (uint32_t i = 0; i < warps;) {
            bool ended = true;
            for (uint32_t l = 0; l < 32; l++)
                ended &= emu.fibers[order[i] * 32 + l].is_done;
            if (ended)
                order[i] = order[--warps];
            else
                i++;
        }
        idle = moved || (!stops && !emu.bulk.empty()) ? 0 : idle + 1;
        if (stops && idle > 20)
            return;
        if (idle > 100 && !emu.failed) {
            emu.failed = true;
            tell_deadlock(emu.message, sizeof emu.message, count);
        }
    }
    if (!emu.failed && !emu.bulk.empty()) {
        emu.failed = true;
        snprintf(emu.message, sizeof emu.message, "%zu bulk copies under way at the block's end",
                 emu.bulk.size());
    }
}

} // namespace emulated

using namespace emulated;

size_t emulate_parameter_bytes(const char *kernel)
{
    auto found = known_kernels().find(kernel);
    return found == known_kernels().end() ? 0 : found->second.parameter_bytes;
}

/* A launch of which one cluster has begun. */
struct emulated_start {
    machine state;
    uint32_t first; /* the cluster's first block */
};

static bool tell(const cuda_launch *launch, char *report, size_t report_bytes)
{
    block &b = here();
    snprintf(report, report_bytes, "%s, block (%u, %u, %u), thread %u: %s", launch->kernel, b.at.x,
             b.at.y, b.at.z, emu.current->thread.x, emu.message);
    return false;
}

static bool begin(const cuda_launch *launch, uint64_t seed, char *report, size_t report_bytes)
{
    auto found = known_kernels().find(launch->kernel);
    if (found == known_kernels().end()) {
        snprintf(report, report_bytes, "no kernel is named %s", launch->kernel);
        return false;
    }
    uint64_t count = uint64_t(launch->grid[0]) * launch->grid[1] * launch->grid[2];
    if (found->second.parameter_bytes != launch->parameter_bytes || launch->threads % 32 ||
        !launch->threads || !launch->cluster || launch->grid[0] % launch->cluster || !count) {
        snprintf(report, report_bytes, "%s: a launch of %u parameter bytes, %u threads, grid %u",
                 launch->kernel, launch->parameter_bytes, launch->threads, launch->grid[0]);
        return false;
    }
    emu.parameters = launch->parameters;
    emu.entry = found->second.run;
    emu.early = launch->early;
    emu.grid = {launch->grid[0], launch->grid[1], launch->grid[2]};
    emu.threads = launch->threads;
    emu.cluster_size = launch->cluster;
    emu.shared_bytes = launch->shared_bytes;
    emu.random = seed;
    emu.failed = false;
    emu.ahead_is_done = 1;
    return true;
}

static uint32_t clusters_of(const cuda_launch *launch)
{
    return launch->grid[0] * launch->grid[1] * launch->grid[2] / launch->cluster;
}

/* Runs all clusters; the one of `start` from where it stands. */
static bool run_all(const cuda_launch *launch, emulated_start *start, uint64_t seed, char *report,
                    size_t report_bytes)
{
    uint32_t done = UINT32_MAX, count = launch->cluster * launch->threads;
    if (start) {
        std::swap(emu, start->state);
        done = start->first;
        emu.random = seed;
        emu.ahead_is_done = 1;
        run_cluster(count);
        if (emu.failed)
            return tell(launch, report, report_bytes);
    } else if (!begin(launch, seed, report, report_bytes))
        return false;
    std::vector<uint32_t> order(clusters_of(launch));
    for (size_t i = 0; i < order.size(); i++)
        order[i] = uint32_t(i) * launch->cluster;
    for (size_t i = order.size(); i > 1; i--)
        std::swap(order[i - 1], order[draw(uint32_t(i))]);
    for (uint32_t first : order) {
        if (first == done)
            continue;
        set_up(launch, first);
        run_cluster(count);
        if (emu.failed)
            return tell(launch, report, report_bytes);
    }
    return true;
}

/* Starts that ended: their stacks are used again. Nothing destroys starts, nor the lists. */
static std::vector<emulated_start *> &idle_starts = *new std::vector<emulated_start *>();
static std::vector<emulated_start *> &all_starts = *new std::vector<emulated_start *>();

/* Begins a cluster of the launch. nullptr: it made a mistake. */
static emulated_start *start_early(const cuda_launch *launch, uint64_t seed, char *report,
                                   size_t report_bytes)
{
    if (idle_starts.empty()) {
        all_starts.push_back(new emulated_start());
        idle_starts.push_back(all_starts.back());
    }
    emulated_start *start = idle_starts.back();
    idle_starts.pop_back();
    std::swap(emu, start->state);
    bool sound = begin(launch, seed, report, report_bytes);
    if (sound) {
        start->first = draw(clusters_of(launch)) * launch->cluster;
        set_up(launch, start->first);
        emu.ahead_is_done = 0;
        run_cluster(launch->cluster * launch->threads);
        sound = !emu.failed || tell(launch, report, report_bytes);
    }
    std::swap(emu, start->state);
    if (sound)
        return start;
    idle_starts.push_back(start);
    return nullptr;
}

static bool lets_next(const emulated_start *start)
{
    bool all = true;
    for (const block &b : start->state.blocks)
        all &= b.lets_next;
    return all;
}

bool emulate_next(const cuda_launch *const *launches, emulated_start **starts, uint32_t count,
                  uint64_t seed, char *report, size_t report_bytes)
{
    fault_guard guard;
    emu.random = seed;
    uint32_t most = draw(EMULATE_AT_ONCE);
    for (uint32_t i = 0; i < count && i <= most && most && launches[i]->early; i++) {
        if (i && !lets_next(starts[i - 1]))
            break;
        if (!starts[i] && !(starts[i] = start_early(launches[i], seed + i, report, report_bytes)))
            return false;
    }
    bool sound = run_all(launches[0], starts[0], seed, report, report_bytes);
    if (starts[0])
        idle_starts.push_back(starts[0]);
    starts[0] = nullptr;
    return sound;
}

bool emulate_launch(const cuda_launch *launch, uint64_t seed, char *report, size_t report_bytes)
{
    emulated_start *none = nullptr;
    return emulate_next(&launch, &none, 1, seed, report, report_bytes);
}
