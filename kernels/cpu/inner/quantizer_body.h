/* The source of each struct quantizer, compiled once per instruction set. Sums over a group run in
 * LANES lanes in all sets, which are then added in one order. All other operations work on single
 * numbers. Compiled without contraction. */
#include "kernels/cpu/inner/bf16.h"
#include "kernels/cpu/inner/quantize_row.h"
#include "kernels/cpu/inner/quantized.h"
#include "kernels/cpu/inner/quantizer.h"
#include "kernels/cpu/inner/vector.h"

#define TINY  0x1p-100f /* as in kernels.h: below, everything is zero */
#define LANES 16
#define PARTS (LANES / VECTOR)

/* The scale is the number of largest magnitude, divided by one of these. 8 maps it to -8. Less
 * leaves room on the other side; more cuts it off in favour of the others. */
static const float DIVISORS[] = {8.0f, 7.75f, 8.25f, 7.5f, 8.5f, 7.25f, 8.75f, 7.0f, 6.75f};
enum { DIVISOR_COUNT = sizeof DIVISORS / sizeof *DIVISORS };

static float to_bf16(float value)
{
    return (union float_bits){.bits = (uint32_t)round_one(value) << 16}.value;
}

/* LANES neighbours of a group, or the sums over it. Part p has the lanes from p * VECTOR on. */
struct lanes {
    floats part[PARTS];
};

ALWAYS_INLINE float add_lanes(const struct lanes *sums)
{
    float lane[LANES];
    memcpy(lane, sums->part, sizeof lane);
    for (uint32_t width = LANES / 2; width; width /= 2)
        for (uint32_t i = 0; i < width; i++)
            lane[i] += lane[i + width];
    return lane[0];
}

/* Returns the int4 numbers, -8 .. 7, of the values. */
ALWAYS_INLINE floats number_of(floats value, floats inverse)
{
    floats number = value * inverse + broadcast(EXP_ROUND) - broadcast(EXP_ROUND);
    return smaller(larger(number, broadcast(-8)), broadcast(7));
}

ALWAYS_INLINE float squared_error(const float *group, float scale)
{
    floats inverse = broadcast(1.0f / scale), by = broadcast(scale);
    struct lanes sums = {0};
    for (uint32_t i = 0; i < QUANTIZED_GROUP; i += LANES)
        for (uint32_t p = 0; p < PARTS; p++) {
            floats value = *(const floats *)(group + i + p * VECTOR);
            floats error = value - number_of(value, inverse) * by;
            sums.part[p] += error * error;
        }
    return add_lanes(&sums);
}

/* Returns the scale that fits the numbers of `scale` best: sum of x * q over sum of q * q. NaN: all
 * numbers are zero. */
ALWAYS_INLINE float fitted_scale(const float *group, float scale)
{
    floats inverse = broadcast(1.0f / scale);
    struct lanes products = {0}, squares = {0};
    for (uint32_t i = 0; i < QUANTIZED_GROUP; i += LANES)
        for (uint32_t p = 0; p < PARTS; p++) {
            floats value = *(const floats *)(group + i + p * VECTOR);
            floats number = number_of(value, inverse);
            products.part[p] += value * number;
            squares.part[p] += number * number;
        }
    return to_bf16(add_lanes(&products) / add_lanes(&squares));
}

static float best_scale(const float *group, float largest)
{
    float errors[DIVISOR_COUNT], best = to_bf16(-largest / DIVISORS[0]);
    for (uint32_t i = 0; i < DIVISOR_COUNT; i++)
        errors[i] = squared_error(group, to_bf16(-largest / DIVISORS[i]));
    float least = errors[0];
    for (uint32_t i = 1; i < DIVISOR_COUNT; i++)
        if (errors[i] < least) {
            least = errors[i];
            best = to_bf16(-largest / DIVISORS[i]);
        }
    float fitted = fitted_scale(group, best);
    bool usable = (fitted < 0 ? -fitted : fitted) >= TINY;
    return usable && squared_error(group, fitted) < least ? fitted : best;
}

/* Packs two numbers a byte, each + 8. */
static void pack_group(const float *group, float scale, uint8_t packed[QUANTIZED_GROUP / 2])
{
    float inverse = scale ? 1.0f / scale : 0;
    int32_t numbers[QUANTIZED_GROUP];
    for (uint32_t i = 0; i < QUANTIZED_GROUP; i += VECTOR) {
        floats number = number_of(*(const floats *)(group + i), broadcast(inverse));
        *(ints *)(numbers + i) = __builtin_convertvector(number, ints) + 8;
    }
    for (uint32_t i = 0; i < QUANTIZED_GROUP / 2; i++)
        packed[i] = (uint8_t)(numbers[2 * i] | numbers[2 * i + 1] << 4);
}

/* Returns the number of largest magnitude, the positive one if both signs have it. Infinite or NaN:
 * a number isn't finite. */
static float largest_of(const float *group)
{
    union float_bits largest = {.bits = (uint32_t)largest_magnitude(group, QUANTIZED_GROUP)};
    uint32_t positive = 0;
    for (uint32_t i = 0; i < QUANTIZED_GROUP; i++)
        positive |= group[i] == largest.value;
    return positive ? largest.value : -largest.value;
}

static bool quantize_group(const float *group, uint8_t packed[QUANTIZED_GROUP / 2], float *scale)
{
    float largest = largest_of(group), magnitude = largest < 0 ? -largest : largest;
    if (!(magnitude <= QUANTIZED_MAX))
        return false;
    *scale = magnitude < TINY ? 0 : best_scale(group, largest);
    pack_group(group, *scale, packed);
    return true;
}

static bool int4_row(const float *row, uint32_t k, uint8_t *numbers, float *scales)
{
    uint32_t whole = k / QUANTIZED_GROUP, rest = k % QUANTIZED_GROUP;
    for (uint32_t g = 0; g < whole; g++)
        if (!quantize_group(row + (size_t)g * QUANTIZED_GROUP,
                            numbers + (size_t)g * QUANTIZED_GROUP / 2, &scales[g]))
            return false;
    if (!rest)
        return true;
    float group[QUANTIZED_GROUP] = {0}; /* zeros have no error */
    uint8_t packed[QUANTIZED_GROUP / 2];
    memcpy(group, row + (size_t)whole * QUANTIZED_GROUP, rest * sizeof *group);
    if (!quantize_group(group, packed, &scales[whole]))
        return false;
    memcpy(numbers + (size_t)whole * QUANTIZED_GROUP / 2, packed, (rest + 1) / 2);
    return true;
}

static bool int8_row(const float *row, uint32_t k, uint8_t *numbers, float *scales)
{
    struct row_scale scale = row_scale_of(row, k);
    if (!(scale.scale <= QUANTIZED_MAX / 127)) /* the next float has another quotient */
        return false;
    *scales = scale.scale;
    quantize(row, k, scale.inverse, (int8_t *)numbers);
    return true;
}

#define QUANTIZER_TABLE(NAME)                                                                      \
    {                                                                                              \
        .name = NAME, .int8_row = int8_row, .int4_row = int4_row                                   \
    }
