/* bench_kernels [rounds] [cpu]: the fast backends on one pinned thread, in the shapes of a 1.1B
 * Llama.
 *
 * Linear layers of each type of weights run at 1 to 512 rows, in GFLOP/s beside the
 * register-to-register peak of their best instruction. At one row they are in GB/s of weights
 * beside a sequential read of the same memory. Attention runs in prefill and decode. Rounds go over
 * all cases in turn, so that a disturbance hits all alike. Prints medians, in time that the thread
 * ran. Weights cycle through more memory than a cache holds.
 *
 * On a virtual machine another tenant's thread may run on the same core, and no clock shows it. It
 * takes issue slots, but the peak, two instructions a cycle, hardly changes. So calls of many rows
 * are also reported separately if a short run of instructions that need only issue slots went at
 * full speed directly before and after.
 */
#include "kernels/cpu/isa.h"
#include "kernels/kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_ROUNDS = 99, LAYERS = 8, MAX_ROWS = 512, CONTEXT = 2048, BLOCK_TOKENS = 32 };
enum { HEADS = 32, KV_HEADS = 4, DIM = 64, HIDDEN = 2048, FFN = 5632, VOCAB = 32000 };
enum { MODEL_LAYERS = 22, MAX_CALLS = 16384 };

static const struct layer_kind {
    const char *name;
    uint32_t n, k, copies;
} kinds[] = {
    {"qkv", (HEADS + 2 * KV_HEADS) * DIM, HIDDEN, LAYERS},
    {"o", HIDDEN, HEADS *DIM, LAYERS},
    {"gate_up", 2 * FFN, HIDDEN, LAYERS},
    {"down", HIDDEN, FFN, LAYERS},
    {"lm_head", VOCAB, HIDDEN, 2},
};
static const uint32_t row_counts[] = {1, 8, 32, 128, 512};

static const enum weight_type types[] = {WEIGHT_BF16, WEIGHT_INT8, WEIGHT_INT4};
/* The pool's types: the backend's floats, and int8. */
static const struct kv_kind {
    const char *name;
    enum kv_type type;
} kv_kinds[] = {{"bf16", KV_BF16}, {"int8", KV_INT8}};

enum {
    KINDS = sizeof kinds / sizeof *kinds,
    COUNTS = sizeof row_counts / sizeof *row_counts,
    TYPES = sizeof types / sizeof *types,
    KV_KINDS = sizeof kv_kinds / sizeof *kv_kinds
};

/* Linear layers of one type of weights; figures, a value a round. */
struct layers {
    enum weight_type type;
    struct linear linears[KINDS][LAYERS];
    const char *instruction;
    double rates[COUNTS][MAX_ROUNDS]; /* GFLOP/s over all kinds */
    double kind_512[KINDS][MAX_ROUNDS];
    struct call {
        double rate, issue_rate; /* GFLOP/s; the lower one of before and after */
    } calls[COUNTS][MAX_CALLS];  /* calls with 128 rows and more */
    uint32_t call_count[COUNTS];
    double read_of_weights[MAX_ROUNDS]; /* GB/s at one row */
    double peak[MAX_ROUNDS], read_limit[MAX_ROUNDS];
};

struct bench {
    struct kernels *kernels;
    struct layers layers[TYPES];
    uint32_t type_count;
    double issue_rate; /* the best that was seen */
    struct buffer in, out, table, positions, row_sequence, sequence_rows;
    struct pool {
        struct buffer memory;
        struct kv_layout layout;
        struct {
            double prefill[MAX_ROUNDS];     /* GFLOP/s */
            double decode_read[MAX_ROUNDS]; /* GB/s of keys and values */
            double decode_us[MAX_ROUNDS];   /* all layers of the model, for one token */
        } attention;
    } pools[KV_KINDS];
};

/* Nanoseconds that this thread ran, without the time of other processes. */
static uint64_t ran_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

#define ISSUE_LOOPS 20000

/* Instructions a nanosecond that need nothing but an issue slot: 70 us of them. */
static double issue_rate(void)
{
    uint64_t begin = ran_ns();
#if defined(__x86_64__)
    uint64_t loops = ISSUE_LOOPS;
    __asm__ volatile("1:\n.rept 29\nnop\n.endr\ndec %0\njnz 1b\n" : "+r"(loops)::"cc");
#endif
    return ISSUE_LOOPS * 30.0 / (double)(ran_ns() - begin + 1);
}

#define WHOLE_SHARE 0.93 /* share of the best rate seen */

static void must(enum status status, const char *what)
{
    if (status == STATUS_OK)
        return;
    fprintf(stderr, "bench_kernels: %s: %s\n", what, status_name(status));
    exit(1);
}

static struct buffer filled(struct kernels *kernels, size_t bytes, int byte)
{
    struct buffer buffer;
    must(kernels_alloc(kernels, bytes, &buffer), "memory");
    memset(buffer.address, byte, bytes); /* 0x3c: every float and bf16 is about 0.01 */
    return buffer;
}

static struct buffer numbers(struct kernels *kernels, uint32_t count, uint32_t first, uint32_t step)
{
    struct buffer buffer;
    must(kernels_alloc(kernels, count * sizeof(uint32_t), &buffer), "memory");
    for (uint32_t i = 0; i < count; i++)
        ((uint32_t *)buffer.address)[i] = first + i * step;
    return buffer;
}

static void layers_open(struct kernels *kernels, enum weight_type type, struct layers *layers)
{
    layers->type = type;
    for (int kind = 0; kind < KINDS; kind++)
        for (uint32_t i = 0; i < kinds[kind].copies; i++) {
            struct linear *linear = &layers->linears[kind][i];
            must(kernels_linear_create(kernels, type, kinds[kind].n, kinds[kind].k, linear),
                 "weights");
            memset(linear->packed.address, 0x3c, linear->packed.bytes);
        }
}

static void bench_open(struct bench *bench, enum isa isa, uint32_t type_count, int cpu)
{
    struct kernels_config config = {.isa = isa, .threads = 1, .cpus = &cpu};
    struct error err;
    if (kernels_open(&config, &bench->kernels, &err) != STATUS_OK) {
        fprintf(stderr, "bench_kernels: %s\n", err.text);
        exit(1);
    }
    struct kernels *k = bench->kernels;
    bench->type_count = type_count;
    for (uint32_t i = 0; i < type_count; i++)
        layers_open(k, types[i], &bench->layers[i]);
    uint32_t blocks = CONTEXT / BLOCK_TOKENS;
    bench->in = filled(k, (size_t)MAX_ROWS * FFN * sizeof(float), 0x3c);
    bench->out = filled(k, (size_t)MAX_ROWS * VOCAB * sizeof(float), 0);
    for (int kind = 0; kind < KV_KINDS; kind++) {
        struct pool *pool = &bench->pools[kind];
        pool->layout = (struct kv_layout){.layers = LAYERS,
                                          .kv_heads = KV_HEADS,
                                          .head_dim = DIM,
                                          .block_tokens = BLOCK_TOKENS,
                                          .type = kv_kinds[kind].type,
                                          .layer_end = LAYERS,
                                          .head_end = KV_HEADS};
        pool->memory = filled(k, blocks * kv_layout_block_bytes(&pool->layout), 0x3c);
    }
    bench->table = numbers(k, blocks, 0, 1);
    bench->positions = numbers(k, MAX_ROWS, CONTEXT - MAX_ROWS, 1);
    bench->row_sequence = numbers(k, MAX_ROWS, 0, 0);
    bench->sequence_rows = numbers(k, 2, 0, MAX_ROWS);
}

/* Nanoseconds of one layer: all copies, so that weights come from memory. */
static double run_few_rows(struct bench *bench, const struct layers *layers, int kind,
                           uint32_t rows)
{
    uint64_t begin = ran_ns();
    for (uint32_t i = 0; i < kinds[kind].copies; i++)
        must(kernels_linear(bench->kernels, &layers->linears[kind][i], &bench->in, rows, false,
                            &bench->out),
             "linear");
    return (double)(ran_ns() - begin) / kinds[kind].copies;
}

/* The same of many rows: call by call. */
static double run_many_rows(struct bench *bench, struct layers *layers, int kind, int count)
{
    uint32_t rows = row_counts[count];
    double flops = 2.0 * kinds[kind].n * kinds[kind].k * rows, ns = 0;
    for (uint32_t i = 0; i < kinds[kind].copies; i++) {
        double before = issue_rate();
        uint64_t begin = ran_ns();
        must(kernels_linear(bench->kernels, &layers->linears[kind][i], &bench->in, rows, false,
                            &bench->out),
             "linear");
        double took = (double)(ran_ns() - begin), after = issue_rate();
        ns += took;
        if (layers->call_count[count] < MAX_CALLS)
            layers->calls[count][layers->call_count[count]++] =
                (struct call){flops / took, fmin(before, after)};
        bench->issue_rate = fmax(bench->issue_rate, fmax(before, after));
    }
    return ns / kinds[kind].copies;
}

static void measure_linear(struct bench *bench, struct layers *layers, int count, int round)
{
    double flops = 0, bytes = 0, ns = 0;
    uint32_t rows = row_counts[count];
    for (int kind = 0; kind < KINDS; kind++) {
        double size = (double)kinds[kind].n * kinds[kind].k;
        double mean_ns = rows < 128 ? run_few_rows(bench, layers, kind, rows)
                                    : run_many_rows(bench, layers, kind, count);
        uint32_t copies = kinds[kind].copies;
        flops += 2 * size * rows * copies;
        bytes += (double)layers->linears[kind][0].packed.bytes * copies;
        ns += mean_ns * copies;
        if (rows == MAX_ROWS)
            layers->kind_512[kind][round] = 2 * size * rows / mean_ns;
    }
    layers->rates[count][round] = flops / ns;
    if (rows == 1)
        layers->read_of_weights[round] = bytes / ns;
}

static void measure_layers(struct bench *bench, struct layers *layers, int round)
{
    layers->peak[round] = kernels_measure_peak(bench->kernels, layers->type, &layers->instruction);
    double bytes = 0, ns = 0;
    /* The largest kind first: the probe chooses its way of reading on the first memory that it
     * sees, which no cache should hold. */
    for (int kind = KINDS - 1; kind >= 0; kind--)
        for (uint32_t i = 0; i < kinds[kind].copies; i++) {
            const struct buffer *packed = &layers->linears[kind][i].packed;
            ns += (double)kernels_measure_read(bench->kernels, packed);
            bytes += (double)packed->bytes;
        }
    layers->read_limit[round] = bytes / ns;
    for (int count = 0; count < COUNTS; count++)
        measure_linear(bench, layers, count, round);
}

/* `rows` query rows at the end of the context, over all layers; nanoseconds a layer. */
static double run_attention(struct bench *bench, const struct pool *pool, uint32_t rows)
{
    struct buffer last = bench->positions;
    last.address = (uint32_t *)last.address + (MAX_ROWS - rows);
    last.bytes = rows * sizeof(uint32_t);
    struct step_batch batch = {.rows = rows,
                               .sequences = 1,
                               .tokens = last,
                               .positions = last,
                               .row_sequence = bench->row_sequence,
                               .sequence_rows = bench->sequence_rows,
                               .block_tables = bench->table,
                               .table_stride = CONTEXT / BLOCK_TOKENS};
    struct attention_shape shape = {
        .heads = HEADS, .kv_heads = KV_HEADS, .head_dim = DIM, .scale = 0.125f};
    uint64_t begin = ran_ns();
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        must(kernels_attention(bench->kernels, &batch, &shape, &pool->layout, layer, &bench->in,
                               &pool->memory, &bench->out),
             "attention");
    return (double)(ran_ns() - begin) / LAYERS;
}

static void measure_attention(struct bench *bench, struct pool *pool, int round)
{
    double seen = (double)MAX_ROWS * (CONTEXT - MAX_ROWS) + MAX_ROWS * (MAX_ROWS + 1) / 2.0;
    pool->attention.prefill[round] = 4 * seen * HEADS * DIM / run_attention(bench, pool, MAX_ROWS);
    double layer_ns = run_attention(bench, pool, 1);
    uint32_t blocks = CONTEXT / BLOCK_TOKENS;
    pool->attention.decode_read[round] =
        (double)(blocks * kv_layout_layer_bytes(&pool->layout)) / layer_ns;
    pool->attention.decode_us[round] = layer_ns * MODEL_LAYERS / 1000;
}

static void measure(struct bench *bench, int round)
{
    for (int i = 0; i < 500; i++)
        bench->issue_rate = fmax(bench->issue_rate, issue_rate());
    for (uint32_t i = 0; i < bench->type_count; i++)
        measure_layers(bench, &bench->layers[i], round);
    for (int kind = 0; kind < KV_KINDS; kind++)
        measure_attention(bench, &bench->pools[kind], round);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *values, uint32_t count)
{
    static double sorted[MAX_CALLS];
    memcpy(sorted, values, count * sizeof *values);
    qsort(sorted, count, sizeof *sorted, ascending);
    return sorted[count / 2];
}

static void print_whole(const struct bench *bench, const struct layers *layers, int count,
                        double peak)
{
    static double rates[MAX_CALLS];
    uint32_t whole = 0;
    for (uint32_t i = 0; i < layers->call_count[count]; i++)
        if (layers->calls[count][i].issue_rate > WHOLE_SHARE * bench->issue_rate)
            rates[whole++] = layers->calls[count][i].rate;
    if (whole)
        printf("   %3.0f %% in %u of %u calls, the core whole", 100 * median(rates, whole) / peak,
               whole, layers->call_count[count]);
}

static void print_layers(const struct bench *bench, const struct layers *layers, uint32_t rounds)
{
    double peak = median(layers->peak, rounds), read = median(layers->read_limit, rounds);
    printf(" %s weights: %s %.1f GFLOP/s, sequential read %.2f GB/s\n",
           weight_type_names[layers->type], layers->instruction, peak, read);
    for (int count = 0; count < COUNTS; count++) {
        double rate = median(layers->rates[count], rounds);
        printf("  linear T=%-4u %7.1f GFLOP/s  %3.0f %% of peak", row_counts[count], rate,
               100 * rate / peak);
        if (row_counts[count] == 1) {
            double weights = median(layers->read_of_weights, rounds);
            printf("   %6.2f GB/s  %3.0f %% of read", weights, 100 * weights / read);
        }
        print_whole(bench, layers, count, peak);
        printf("\n");
    }
    for (int kind = 0; kind < KINDS; kind++) {
        double rate = median(layers->kind_512[kind], rounds);
        printf("  %-8s T=512 [%u, %u] %7.1f GFLOP/s  %3.0f %%\n", kinds[kind].name, kinds[kind].n,
               kinds[kind].k, rate, 100 * rate / peak);
    }
}

static void print_attention(const struct bench *bench, int kind, uint32_t rounds)
{
    const struct pool *pool = &bench->pools[kind];
    double prefill = median(pool->attention.prefill, rounds);
    printf(" attention, KV %s: %d rows up to %d %7.1f GFLOP/s  %3.0f %%; one row at %d %6.2f GB/s, "
           "%.0f us in %d layers\n",
           kv_kinds[kind].name, MAX_ROWS, CONTEXT, prefill,
           100 * prefill / median(bench->layers[0].peak, rounds), CONTEXT,
           median(pool->attention.decode_read, rounds), median(pool->attention.decode_us, rounds),
           MODEL_LAYERS);
}

static void print(const struct bench *bench, uint32_t rounds)
{
    struct kernels_info info = kernels_info(bench->kernels);
    printf("%s (%s)\n", info.name, info.isa);
    for (uint32_t i = 0; i < bench->type_count; i++)
        print_layers(bench, &bench->layers[i], rounds);
    for (int kind = 0; kind < KV_KINDS; kind++)
        print_attention(bench, kind, rounds);
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 5, cpu = argc > 2 ? atoi(argv[2]) : 0;
    if (rounds < 1 || rounds > MAX_ROUNDS) {
        fprintf(stderr, "usage: bench_kernels [rounds 1..%d] [cpu]\n", MAX_ROUNDS);
        return 2;
    }
    static struct bench benches[3];
    int count = 1;
    enum isa widest = isa_reports_avx512() ? ISA_AVX512
                      : isa_reports_avx2() ? ISA_AVX2
                                           : ISA_PORTABLE;
    bench_open(&benches[0], widest, TYPES, cpu);
    if (isa_executes_avx512bf16()) /* its quantized layers are the same */
        bench_open(&benches[count++], ISA_AVX512BF16, 1, cpu);
    if (isa_allows_amx())
        bench_open(&benches[count++], ISA_AMX, 1, cpu);
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < count; i++)
            measure(&benches[i], round);
    for (int i = 0; i < count; i++)
        print(&benches[i], (uint32_t)rounds);
    return 0; /* the process's end frees the memory */
}
