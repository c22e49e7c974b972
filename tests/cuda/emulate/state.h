/* The emulator's inside: fibers, barriers, and what runs late. Shared by emulate.cpp, the
 * scheduler, and device.h, the functions that kernels call. */
#ifndef BATON_TESTS_CUDA_EMULATE_STATE_H
#define BATON_TESTS_CUDA_EMULATE_STATE_H

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

namespace emulated
{

struct index3 {
    uint32_t x, y, z;
};

/* An mbarrier: a phase ends when all arrivals and all bytes have come. */
struct mbarrier {
    int32_t expected, pending, bytes;
    uint32_t phase;
    bool is_set_up;
    uint32_t set_up_in; /* the cluster barrier's generation then */
};

struct named_barrier {
    uint32_t arrived, generation;
};

/* A product of wgmma that hasn't run: it reads its operands when it is waited for, or before. */
struct product {
    uint32_t group;
    std::function<void()> run;
};

struct warp {
    uint32_t arrived, generation;
    const char *operation; /* its lanes gather for it */
    void *lane[32];        /* their arguments */
    std::vector<product> products;
    uint32_t group; /* the group of products under way */
};

struct copy { /* cp.async of a thread that hasn't landed: bytes, or zeros */
    uint32_t group, bytes;
    uint8_t *target;
    const void *source;
    bool is_real;
};
inline void land(const copy &c)
{
    if (c.is_real)
        memcpy(c.target, c.source, c.bytes);
    else
        memset(c.target, 0, c.bytes);
}

struct fiber {
    void *stack_pointer;
    char *stack;
    index3 thread;
    uint32_t block;       /* inside the cluster */
    const uint32_t *word; /* waits until *word != value; nullptr: ready */
    uint32_t value;
    const char *waits_for;
    uint32_t copy_group;
    std::vector<copy> copies;
    bool is_done, has_waited; /* for the kernel ahead */
};

struct block {
    index3 at;
    uint8_t *shared;                 /* [shared_bytes] */
    std::vector<mbarrier> mbarriers; /* [shared_bytes / 8] */
    named_barrier named[16];
    std::vector<warp> warps;
    bool lets_next; /* the kernel behind may start */
};

struct bulk_copy {
    std::function<void()> land;
};

struct machine {
    std::vector<block> blocks; /* the cluster under way */
    std::vector<fiber> fibers;
    std::vector<bulk_copy> bulk;
    named_barrier cluster;
    fiber *current;
    void *scheduler;
    index3 grid;
    uint32_t threads, cluster_size, shared_bytes;
    uint64_t random;
    bool failed;
    char message[256];
    std::vector<uint8_t> memory; /* the blocks' shared memory */
    const void *parameters;
    void (*entry)(const void *);
    bool early;
    uint32_t ahead_is_done; /* the kernel ahead; 0: threads stop where they wait for it */
};
extern machine emu;

/* Addresses of shared memory as kernels see them begin here, so that 0 is no address. */
constexpr uint32_t SHARED_BASE = 1024;

[[noreturn]] void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
uint32_t draw(uint32_t bound);
void wait_while(const uint32_t *word, uint32_t value, const char *what);
/* The last lane of a warp to come runs `together` for all. */
void gather(const char *operation, void *arguments, void (*together)(warp &));
void meet(named_barrier &barrier, uint32_t count, bool waits, const char *what);
uint8_t *shared_at(uint32_t address, uint32_t bytes, int block = -1);
mbarrier &mbarrier_at(uint32_t address, int block = -1);
/* A block's memory ends with it. */
bool is_running(uint32_t rank);
/* An mbarrier of a block of the cluster. Fails if the block has ended, or if it is another block
 * and no barrier of the cluster lies between the mbarrier's set-up and here. */
mbarrier &mbarrier_of(uint32_t address, uint32_t rank);
/* A failure outside of threads: the launch ends behind it. */
void note(const char *mistake);
void arrive(mbarrier &barrier);
void settle(mbarrier &barrier);
/* One step of the tensor core for 8 columns: 16 products each, added to sums in no order
 * (emulate.h). */
void tensor_steps(float (&sums)[8], const float (&row)[16], const float (&columns)[16][8]);
void run_products(warp &w, uint32_t pending);
void wait_for_kernel_ahead();

struct registration {
    registration(const char *name, size_t parameter_bytes, void (*run)(const void *));
};

inline block &here()
{
    return emu.blocks[emu.current->block];
}
inline warp &my_warp()
{
    return here().warps[emu.current->thread.x / 32];
}

} // namespace emulated

#endif
